// Members of groups and a producer by franz-go, sarama and kafka-go.
//
//	clients member LIBRARY ADDRESS GROUP TOPIC CLIENT ASSIGNOR [INSTANCE]
//	clients log LIBRARY ADDRESS TOPIC
//	clients transactions ADDRESS TOPIC RECORDS
//
// A member commits what it has read and speaks as tests/support/kafka/worker.py does; it leaves when its input ends.
// The story of a log writes and reads records, and prints what it sees.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	session, staticSession, heartbeat = 3 * time.Second, 30 * time.Second, 300 * time.Millisecond
	patience                          = 60 * time.Second
)

type job struct {
	addresses                                []string
	group, topic, client, assignor, instance string
}

func (j job) session() time.Duration {
	if j.instance != "" {
		return staticSession
	}
	return session
}

var members = map[string]func(job, *teller) func(){"franz-go": franzMember, "sarama": saramaMember, "kafka-go": segmentMember}
var logs = map[string]func(string, string){"franz-go": franzLog, "sarama": saramaLog, "kafka-go": segmentLog}

func main() {
	arguments := os.Args[1:]
	if arguments[0] == "log" {
		logs[arguments[1]](arguments[2], arguments[3])
		return
	}
	if arguments[0] == "transactions" {
		franzTransactions(arguments[1], arguments[2], must(strconv.Atoi(arguments[3])))
		return
	}
	told := job{strings.Split(arguments[2], ","), arguments[3], arguments[4], arguments[5], arguments[6], ""}
	if len(arguments) > 7 {
		told.instance = arguments[7]
	}
	leave := members[arguments[1]](told, &teller{assigned: map[int32]bool{}})
	io.Copy(io.Discard, os.Stdin)
	leave()
	say(map[string]any{"left": true})
}

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Says what is assigned whenever that changes, and what was read.
type teller struct {
	lock     sync.Mutex
	assigned map[int32]bool
}

func (t *teller) set(partitions []int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.assigned = map[int32]bool{}
	t.change(partitions, true)
}

func (t *teller) gain(partitions []int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.change(partitions, true)
}

func (t *teller) lose(partitions []int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.change(partitions, false)
}

func (t *teller) change(partitions []int32, has bool) {
	for _, partition := range partitions {
		if has {
			t.assigned[partition] = true
		} else {
			delete(t.assigned, partition)
		}
	}
	now := []int32{}
	for partition := range t.assigned {
		now = append(now, partition)
	}
	sort.Slice(now, func(one, other int) bool { return now[one] < now[other] })
	say(map[string]any{"assigned": now})
}

func (t *teller) read(partition int32, offset int64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	say(map[string]any{"read": [][2]int64{{int64(partition), offset}}})
}

// What the story of a log prints of a record.
func show(partition int32, offset int64, key, value []byte, headers map[string]string) {
	fmt.Println("record", partition, offset, string(key), len(value), headers["trace"])
}

// One group member by franz-go or sarama. It takes its job and its commands, and speaks, as python_member.py does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
)

type job struct {
	Library     string   `json:"library"`
	Protocol    string   `json:"protocol"`
	Address     string   `json:"address"`
	Group       string   `json:"group"`
	Name        string   `json:"name"`
	Topics      []string `json:"topics"`
	Pattern     string   `json:"pattern"`
	Assignors   []string `json:"assignors"`
	Instance    string   `json:"instance"`
	SessionMs   int      `json:"session_ms"`
	HeartbeatMs int      `json:"heartbeat_ms"`
	PollMs      int      `json:"poll_ms"`
	MetadataMs  int      `json:"metadata_ms"`
}

// What a client is to the loop of commands.
type member interface {
	subscribe(topics []string)
	close()
}

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

// Tells what is assigned, whenever that changes.
type teller struct {
	lock sync.Mutex
	held map[string]map[int32]bool
	told string
}

func (t *teller) set(given map[string][]int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.held = map[string]map[int32]bool{}
	t.add(given)
	t.tell()
}

func (t *teller) gain(given map[string][]int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.add(given)
	t.tell()
}

func (t *teller) lose(taken map[string][]int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for topic, partitions := range taken {
		for _, partition := range partitions {
			delete(t.held[topic], partition)
		}
	}
	t.tell()
}

func (t *teller) add(given map[string][]int32) {
	if t.held == nil {
		t.held = map[string]map[int32]bool{}
	}
	for topic, partitions := range given {
		if t.held[topic] == nil {
			t.held[topic] = map[int32]bool{}
		}
		for _, partition := range partitions {
			t.held[topic][partition] = true
		}
	}
}

func (t *teller) tell() {
	places := [][]any{}
	for topic, partitions := range t.held {
		for partition := range partitions {
			places = append(places, []any{topic, partition})
		}
	}
	sort.Slice(places, func(one, other int) bool { return fmt.Sprint(places[one]) < fmt.Sprint(places[other]) })
	line, _ := json.Marshal(places)
	if string(line) != t.told {
		t.told = string(line)
		say(map[string]any{"assigned": places})
	}
}

func main() {
	var told job
	if err := json.Unmarshal([]byte(os.Args[1]), &told); err != nil {
		panic(err)
	}
	var consumer member
	switch told.Library {
	case "franz-go":
		consumer = franz(told)
	case "sarama":
		consumer = saramaMember(told)
	default:
		panic(told.Library)
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		word, rest, _ := strings.Cut(input.Text(), " ")
		switch word {
		case "exit":
			os.Exit(0)
		case "subscribe":
			consumer.subscribe(strings.Split(rest, ","))
		case "close":
			consumer.close()
			say(map[string]any{"closed": true})
			os.Exit(0)
		}
	}
}

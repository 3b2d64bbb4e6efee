"""Who wants to hear of records and of topics."""

from collections.abc import Callable


class TopicListeners:
    """Called by the thread in which something happened, unless it says otherwise."""

    def __init__(self) -> None:
        self._topic_listeners: list[Callable[[], None]] = []
        self._append_listeners: list[Callable[[str, int], None]] = []
        self._change_listeners: list[Callable[[int], None]] = []

    def on_append(self, listener: Callable[[str, int], None]) -> None:
        """Call with topic and partition when more can be read, possibly from the thread that flushed."""
        self._append_listeners.append(listener)

    def on_topics_changed(self, listener: Callable[[], None]) -> None:
        """Call after topics or partition counts changed."""
        self._topic_listeners.append(listener)

    def on_logs_changed(self, listener: Callable[[int], None]) -> None:
        """Call with how many logs were made, some at a time, or (less than 0) are gone; in the thread that does it."""
        self._change_listeners.append(listener)

    def _tell_change(self, count: int) -> None:
        for listener in self._change_listeners:
            listener(count)

    def tell_topics(self) -> None:
        """Call the listeners, after `make` or `hide`; in the thread in which they live."""
        for listener in self._topic_listeners:
            listener()

package layers

// queue is a line of waiters in the order of their tickets: one that has lost
// its place, to wait for something else first, finds it again.
type queue[T any] struct {
	head, tail *waiter[T]
}

// waiter is a place in a queue.
type waiter[T any] struct {
	self       T
	ticket     uint64
	signal     chan struct{} // has a value when there is news
	queued     bool
	prev, next *waiter[T]
}

func newWaiter[T any](self T, ticket uint64) waiter[T] {
	return waiter[T]{self: self, ticket: ticket, signal: make(chan struct{}, 1)}
}

// newest reports that a ticket's place is behind all others.
func (q *queue[T]) newest(ticket uint64) bool { return q.tail == nil || q.tail.ticket < ticket }

// add puts w in its place. An old ticket's is near the head.
func (q *queue[T]) add(w *waiter[T]) {
	w.queued = true
	if q.newest(w.ticket) {
		w.prev, q.tail = q.tail, w
	} else {
		w.next = q.head
		for w.next.ticket < w.ticket {
			w.next = w.next.next
		}
		w.prev, w.next.prev = w.next.prev, w
	}
	if w.prev == nil {
		q.head = w
	} else {
		w.prev.next = w
	}
}

// remove takes w out, if it is in.
func (q *queue[T]) remove(w *waiter[T]) {
	if !w.queued {
		return
	}
	w.queued = false
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

func (q *queue[T]) len() (n int) {
	for w := q.head; w != nil; w = w.next {
		n++
	}
	return n
}

func (w *waiter[T]) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Signal implements Turn and Place.
func (w *waiter[T]) Signal() <-chan struct{} { return w.signal }

package zsock

import (
	"sync"
	"sync/atomic"
)

const (
	// maxPendingCommands bounds the PONGs owed to a peer that sends PINGs and reads nothing.
	maxPendingCommands = 16
	// keepQueue is the capacity, in messages, that an emptied queue keeps for its next burst.
	keepQueue = 1024
)

type message [][]byte

type command struct {
	name string
	body []byte
}

// outbox is what waits for one connection's writer. Appending never waits for the network: a message is
// queued, or dropped when the queue is full.
type outbox struct {
	// hwm is the high-water mark in messages, 0 = none.
	//
	// As in libzmq, the queue does not take one new message for each one that leaves: room is given back
	// in steps of half the mark, so a peer that falls behind sees few long gaps and not many short ones.
	hwm uint64
	// most is how many messages may wait at all, 0 = any number: where nothing may be lost, a peer that reads
	// less than it asks for is told apart from a slow one by this.
	most int

	mu       sync.Mutex
	queue    []message
	head     int // index of the oldest message still in queue
	commands []command
	accepted uint64 // messages ever queued
	idle     bool   // the writer sleeps and must be woken
	closed   bool

	written atomic.Uint64 // messages ever handed to the connection, by the writer alone
	wake    chan struct{} // holds at most one token
	done    chan struct{} // closed with closed
}

func newOutbox(hwm int) *outbox {
	return &outbox{hwm: uint64(max(hwm, 0)), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// pushResult says what became of a message.
type pushResult int

const (
	pushed  pushResult = iota // queued for the writer
	dropped                   // the queue is at its high-water mark
	gone                      // the connection is closed
	tooMany                   // more than most wait
)

func (o *outbox) push(m message) pushResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return gone
	case o.full():
		return dropped
	case o.most > 0 && len(o.queue)-o.head >= o.most:
		return tooMany
	}
	o.makeRoom()
	o.queue = append(o.queue, m)
	o.accepted++
	o.rouse()
	return pushed
}

func (o *outbox) full() bool {
	if o.hwm == 0 {
		return false
	}
	step := (o.hwm + 1) / 2
	return o.accepted-o.written.Load()/step*step >= o.hwm
}

// makeRoom moves the queue to the front of its array once half of it is used up, so that a queue that is
// never quite empty does not grow for ever.
func (o *outbox) makeRoom() {
	if len(o.queue) == cap(o.queue) && o.head > len(o.queue)/2 {
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
}

// command queues a command ahead of every message. One more than the bound is forgotten: the peer that did
// not read the others will not miss it.
func (o *outbox) command(name string, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.commands) == maxPendingCommands {
		return
	}
	o.commands = append(o.commands, command{name, body})
	o.rouse()
}

// rouse wakes the writer if it sleeps. The caller holds mu.
func (o *outbox) rouse() {
	if o.idle {
		o.idle = false
		select {
		case o.wake <- struct{}{}:
		default: // woken by its ticker last time, the writer has yet to take that token
		}
	}
}

// take moves up to len(dst) messages and every command out. With neither, the writer counts as asleep
// until wake holds a token.
func (o *outbox) take(dst []message) (n int, commands []command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	commands, o.commands = o.commands, nil
	n = copy(dst, o.queue[o.head:])
	clear(o.queue[o.head : o.head+n])
	o.head += n
	if o.head == len(o.queue) {
		o.reset()
	}
	o.idle = n == 0 && len(commands) == 0
	return n, commands
}

func (o *outbox) reset() {
	o.head = 0
	if cap(o.queue) > keepQueue {
		o.queue = nil
	}
	o.queue = o.queue[:0]
}

// close forgets what waits (linger 0) and refuses more.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.queue, o.head, o.commands = nil, 0, nil
		close(o.done)
	}
}

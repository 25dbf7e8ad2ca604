package loop

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// alarm is a timer that is right to about 50 us. Go's own timers are not when the process is otherwise
// idle: the runtime waits for them in epoll_wait, whose unit is a millisecond, so a step of 5 ms may last 6.
// A timerfd ends the same epoll_wait on time.
type alarm struct {
	fd   int
	file *os.File
	// rung holds at most one token: "the time may have come". A token of an earlier setting may be left
	// over, so whoever takes one looks at the clock.
	rung chan struct{}
	done chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating the step timer: %w", err)
	}
	a := &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd"), rung: make(chan struct{}, 1), done: make(chan struct{})}
	go a.wait()
	return a, nil
}

// wait turns expirations into tokens until close.
func (a *alarm) wait() {
	defer close(a.done)
	var buf [8]byte
	for {
		if _, err := a.file.Read(buf[:]); err != nil {
			return
		}
		select {
		case a.rung <- struct{}{}:
		default:
		}
	}
}

// set makes the alarm ring at an instant of clock.MonoNs, in place of the one set before.
func (a *alarm) set(at int64) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1))} // 0 would turn it off
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("setting the step timer: %w", err)
	}
	return nil
}

func (a *alarm) close() error {
	err := a.file.Close()
	<-a.done
	return err
}

package drills

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/linkproxy"
	"fleetdrill/internal/zsock"
)

// partitionFault holds links between the gateway and an engine: nothing is read and nothing forwarded,
// connections stay, new ones are accepted and wait. That is what a network partition looks like to both
// ends before any timeout.
type partitionFault struct {
	scene
	links []heldLink
}

// heldLink is a link to cut and the lab's own way of trying it.
type heldLink struct {
	name  string
	proxy *linkproxy.Proxy
	try   func(context.Context) error
	// before are the proxy's counts when it was released.
	before linkproxy.Stats
}

func (f *partitionFault) prepare(ctx context.Context) error {
	if f.worker.HTTP == nil {
		return fmt.Errorf("%s has no link proxies", f.worker.ID)
	}
	link := f.params.Word("link")
	for _, l := range []heldLink{
		{name: "http", proxy: f.worker.HTTP, try: tryHTTP(f.worker.HTTP)},
		{name: "events", proxy: f.worker.Events, try: tryEvents(f.worker.Events)},
		{name: "replay", proxy: f.worker.Replay, try: tryReplay(f.worker.Replay)},
	} {
		if link == l.name || link == "all" {
			f.links = append(f.links, l)
		}
	}
	if len(f.links) == 0 {
		return fmt.Errorf("no link %q", link)
	}
	// A connection that does not pass before the cut cannot prove the cut.
	return f.eachLink(ctx, func(ctx context.Context, l *heldLink) error { return l.try(ctx) })
}

func (f *partitionFault) inject(context.Context) error {
	for _, l := range f.links {
		l.proxy.Hold()
	}
	return nil
}

// confirm tries every held link and wants silence on each. A hold acts at once, so it counts from its
// return on.
func (f *partitionFault) confirm(ctx context.Context) (proof, error) {
	held := clock.MonoNs()
	e, err := f.check(ctx)
	return proof{evidence: e, effectiveHi: held}, err
}

func (f *partitionFault) check(ctx context.Context) ([]record.Evidence, error) {
	trial, cancel := context.WithTimeout(ctx, canarySilence)
	defer cancel()
	err := f.eachLink(trial, func(ctx context.Context, l *heldLink) error {
		if err := l.try(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the link %s is not held: the lab's own connection came through (%v)", l.name, err)
		}
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return []record.Evidence{seen(clock.MonoNs(), "no connection of the lab's own came through to %s within %v; held bytes: %s",
		f.worker.ID, canarySilence, f.heldBytes())}, nil
}

func (f *partitionFault) heldBytes() string {
	parts := make([]string, len(f.links))
	for i, l := range f.links {
		parts[i] = fmt.Sprintf("%s %d", l.name, l.proxy.Stats().HeldBytes)
	}
	return strings.Join(parts, ", ")
}

func (f *partitionFault) heal(context.Context) error {
	for i := range f.links {
		f.links[i].before = f.links[i].proxy.Stats()
	}
	for _, l := range f.links {
		l.proxy.Release()
	}
	return nil
}

// confirmHealed wants what was held to have gone on, and new connections to pass. Bytes of a connection
// that ended meanwhile have nowhere to go, so fewer may be forwarded than were held, but not none.
func (f *partitionFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	if err := f.eachLink(ctx, func(ctx context.Context, l *heldLink) error { return l.try(ctx) }); err != nil {
		return nil, err
	}
	out := []record.Evidence{seen(clock.MonoNs(), "a connection of the lab's own passes every link of %s again", f.worker.ID)}
	for _, l := range f.links {
		now := l.proxy.Stats()
		moved := now.BytesUp + now.BytesDown - l.before.BytesUp - l.before.BytesDown
		out = append(out, seen(clock.MonoNs(), "link %s: %d bytes were held, %d have been forwarded since", l.name, l.before.HeldBytes, moved))
	}
	return out, nil
}

func (f *partitionFault) close() {}

// eachLink does something on every link at once and joins what went wrong.
func (f *partitionFault) eachLink(ctx context.Context, do func(context.Context, *heldLink) error) error {
	errs := make([]error, len(f.links))
	var wg sync.WaitGroup
	for i := range f.links {
		wg.Go(func() { errs[i] = do(ctx, &f.links[i]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tryHTTP asks for /health through the proxy, on a connection of its own.
func tryHTTP(p *linkproxy.Proxy) func(context.Context) error {
	return func(ctx context.Context) error {
		client := lab.NewHTTPClient()
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr()+"/health", nil)
		if err != nil {
			return fmt.Errorf("building a health request: %w", err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("asking for health through the link: %w", err)
		}
		return resp.Body.Close()
	}
}

// tryEvents subscribes through the proxy until the publisher has the subscription.
func tryEvents(p *linkproxy.Proxy) func(context.Context) error {
	return func(ctx context.Context) error {
		sub, err := zsock.DialSub("tcp://"+p.Addr(), zsock.SubOptions{})
		if err != nil {
			return err
		}
		defer sub.Close()
		for {
			e, err := sub.Recv(ctx)
			if err != nil {
				return fmt.Errorf("subscribing through the link: %w", err)
			}
			if e.Kind == zsock.SubUp {
				return nil
			}
		}
	}
}

// tryReplay completes a handshake with the replay socket through the proxy.
func tryReplay(p *linkproxy.Proxy) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := zsock.DialDealer(ctx, "tcp://"+p.Addr(), zsock.DealerOptions{DialTimeout: time.Second})
		if err != nil {
			return fmt.Errorf("opening the replay socket through the link: %w", err)
		}
		return d.Close()
	}
}

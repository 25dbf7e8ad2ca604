package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"fleetdrill/internal/zsock"
)

// sockets are what a publisher is reached by. events and replay are where a peer dials: the event socket's
// endpoint (or, when it connects, the one it connects to) and the replay socket's, empty without one.
type sockets struct {
	pub            *zsock.Pub
	router         *zsock.Router // nil without a replay socket
	events, replay string
}

// place is where the sockets of a publisher go. replay is nil without one.
type place struct {
	events Target
	replay *Target
}

// placeOf resolves the endpoints of o.
func placeOf(o Options) (pl place, err error) {
	if pl.events, err = ResolveEvents(o.Config.Endpoint, o.Host, o.Rank, o.BindAnyAddress); err != nil {
		return pl, fmt.Errorf("opening the event socket of rank %d: %w", o.Rank, err)
	}
	if o.Config.ReplayEndpoint == nil {
		return pl, nil
	}
	at, err := ResolveReplay(*o.Config.ReplayEndpoint, o.Host, o.Rank)
	if err != nil {
		return pl, fmt.Errorf("opening the replay socket of rank %d: %w", o.Rank, err)
	}
	pl.replay = &at
	return pl, nil
}

// open opens the sockets of o at pl. On an error none is left open.
func open(o Options, pl place) (*sockets, error) {
	s := &sockets{pub: zsock.NewPub(zsock.PubOptions{HWM: o.Config.hwm(), Log: o.Log}), events: pl.events.Endpoint}
	var err error
	if pl.events.Bind {
		s.events, err = s.pub.Bind(s.events)
	} else {
		err = s.pub.Connect(s.events)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the event socket of rank %d: %w", o.Rank, err), s.close())
	}
	if pl.replay == nil {
		return s, nil
	}
	s.router = zsock.NewRouter(zsock.RouterOptions{HWM: o.ReplayHWM, MaxOwed: maxOwed(o.Config.BufferSteps), Log: o.Log})
	if s.replay, err = s.router.Bind(pl.replay.Endpoint); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the replay socket of rank %d: %w", o.Rank, err), s.close())
	}
	return s, nil
}

// maxOwed is how many replay frames may wait for one peer that does not read. It has room for several whole
// replays, so that only who asks again and again without reading is put out: a real engine loses frames for
// it instead (--replay-hwm).
func maxOwed(bufferSteps int) int {
	const replays, least = 4, 100_000
	return max(least, replays*min(bufferSteps+1, math.MaxInt/replays))
}

// place is where these sockets are, ports included, so that the next ones can be there too.
func (s *sockets) place(first place) place {
	pl := place{events: Target{Endpoint: s.events, Bind: first.events.Bind}}
	if first.replay != nil {
		pl.replay = &Target{Endpoint: s.replay, Bind: true}
	}
	return pl
}

func (s *sockets) close() error {
	err := s.pub.Close()
	if s.router != nil {
		err = errors.Join(err, s.router.Close())
	}
	return err
}

// A port that was free a moment ago may be some connection's for a moment: ports picked by the system lie
// in the range that outgoing connections are given.
const (
	reopenFor   = time.Second
	reopenPause = 10 * time.Millisecond
)

// reopen is open, tried again for reopenFor or until ctx ends.
func reopen(ctx context.Context, o Options, pl place) (*sockets, error) {
	ctx, cancel := context.WithTimeout(ctx, reopenFor)
	defer cancel()
	for {
		s, err := open(o, pl)
		if err == nil {
			return s, nil
		}
		o.Log.Log(ctx, slog.LevelDebug, "the sockets of a restarted publisher do not open yet", "rank", o.Rank, "err", err)
		select {
		case <-time.After(reopenPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

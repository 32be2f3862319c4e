package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// subscriber is what news is heard by.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *goredis.PubSub
}

func (s *Store) channel() string { return s.prefix + "news" }

// own is the channel on which a process hears itself.
func (s *Store) own() string { return s.channel() + ":" + s.proc }

// listen hears what other processes tell. A subscription that has ended is made
// anew after a while; as long as there is none, Redis is asked what is new.
func (s *Store) listen() {
	var asked instant
	for s.ctx.Err() == nil {
		s.subscribe()
		if now := s.now(); now-asked >= s.opts.Lease {
			asked = now
			s.resync()
		}
		timer := s.clock.Timer(s.retry())
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// resync has the handles ask for what they may have missed.
func (s *Store) resync() {
	for _, h := range s.all() {
		h.resync()
	}
}

// call says whether the process is to hear itself, and whether it has not, the last
// time.
func (s *Store) call(now instant) (own string, deaf bool) {
	if !s.hears.Load() || now-s.called < s.opts.Lease/3 {
		return "", false
	}
	s.called = now
	return s.own(), s.deaf.Swap(true)
}

// renew ends a subscription that hears nothing.
func (s *Store) renew() {
	select {
	case s.anew <- struct{}{}:
	default:
	}
}

// subscription returns none of a ring all of whose servers are down: it panics.
func (s *Store) subscription(ctx context.Context) (sub *goredis.PubSub) {
	defer func() { _ = recover() }()
	return s.news.Subscribe(ctx, s.channel(), s.own())
}

// subscribe hears news until the subscription ends, or hears nothing of what is
// published: its connection may be dead, or to a server that others have left.
func (s *Store) subscribe() {
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	select {
	case <-s.anew: // is of the last one
	default:
	}
	sub := s.subscription(ctx)
	if sub == nil {
		return
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.anew:
			end()
		}
		sub.Close()
	})
	defer ends.Wait()
	defer end()
	defer s.hears.Store(false)
	for patience := s.patience(); ; {
		m, err := sub.ReceiveTimeout(ctx, patience)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *goredis.Subscription:
			if m.Channel == s.own() { // the last one
				patience = 0
				s.deaf.Store(false)
				s.hears.Store(true)
				s.resync()
			}
		case *goredis.Message:
			if m.Channel == s.own() {
				s.deaf.Store(false)
			} else {
				s.hear(m.Payload)
			}
		}
	}
}

// newer reports that what is told of an era is not known, or older than what is:
// what is published may come after a later answer. An era is when it began, and
// one that began much earlier is of a clock that went back.
func newer(era, known string) bool {
	return later(era, known, 0) || later(known, era, 10*time.Second)
}

// later reports that an era began later than another, by more than so much.
func later(era, other string, by time.Duration) bool {
	one, _ := strconv.ParseFloat(era, 64)
	two, err := strconv.ParseFloat(other, 64)
	return err == nil && one-two > float64(by.Microseconds())
}

func (s *Store) hear(news string) {
	var name, state, era string
	var length float64
	switch what, rest, _ := strings.Cut(news, " "); what {
	case "lost":
		if b, ok := s.find(rest).(*bucket); ok {
			b.remind()
		}
	case "pause":
		if _, err := fmt.Sscan(rest, &name, &era, &length); err == nil {
			if b, ok := s.find(name).(*bucket); ok {
				b.hearPause(era, micros(length))
			}
		}
	case "circuit":
		if _, err := fmt.Sscan(rest, &name, &state, &era, &length); err == nil {
			if c, ok := s.find(name).(*circuit); ok {
				c.hear(state, era, micros(length))
			}
		}
	}
}

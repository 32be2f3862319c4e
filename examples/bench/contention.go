package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// crowd measures stacks that 64 goroutines share, beside as many stacks of weir
// that share nothing but one mutex, which each call holds for some tens of
// nanoseconds: what is shared may not cost more than that does, but for the few
// percent by which such times differ from run to run.
func crowd(stacks ...stack) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		subjects := make([]subject, len(stacks))
		for i, s := range stacks {
			rt := s.build(anyBase{})
			subjects[i] = together(ctx, s.name, func() http.RoundTripper { return rt })
		}
		var one mutex
		return measure(o, together(ctx, "one mutex", func() http.RoundTripper {
			rt := stacks[0].build(anyBase{})
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				one.hold()
				return rt.RoundTrip(req)
			})
		}), subjects...)
	}
}

// anyBase is a memoryBase for many goroutines.
type anyBase struct{}

func (anyBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return new(memoryBase).RoundTrip(req)
}

// mutex is one that is held for some tens of nanoseconds.
type mutex struct {
	mu sync.Mutex
	n  int
}

func (m *mutex) hold() {
	m.mu.Lock()
	for range 40 {
		m.n++
	}
	m.mu.Unlock()
}

// together calls from 64 goroutines at once, each by what stack returns for it.
func together(ctx context.Context, name string, stack func() http.RoundTripper) subject {
	const goroutines, each = 64, 32
	calls := make([]func() error, goroutines)
	for i := range calls {
		c, rt := newCaller(ctx, http.MethodGet, target), stack()
		calls[i] = func() (err error) {
			for n := 0; n < each && err == nil; n++ {
				err = c.call(rt)
			}
			return err
		}
	}
	errs := make([]error, goroutines)
	return subject{name: name, do: func() error {
		var all sync.WaitGroup
		for i, call := range calls {
			all.Go(func() { errs[i] = call() })
		}
		all.Wait()
		return errors.Join(errs...)
	}}
}

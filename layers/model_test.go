package layers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
)

// dice are bytes that decide what a schedule does next. It ends with them.
type dice []byte

// IntN returns a number below n, 0 at the end.
func (d *dice) IntN(n int) int {
	x := 0
	for most := n - 1; most > 0; most >>= 8 {
		if len(*d) > 0 {
			x, *d = x<<8|int((*d)[0]), (*d)[1:]
		}
	}
	return x % n
}

// schedules fuzzes f on the mock clock, with n random schedules to begin with.
// story notes what happened, for a failure to tell.
func schedules(f *testing.F, n int, model func(t *testing.T, e *Env, pass func(time.Duration), dice *dice, story *strings.Builder)) {
	for seed := range uint64(n) {
		random, schedule := rand.New(rand.NewPCG(seed, 1)), make([]byte, 500)
		for i := range schedule {
			schedule[i] = byte(random.Uint32())
		}
		f.Add(schedule)
	}
	f.Fuzz(func(t *testing.T, schedule []byte) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			e := (&Env{Clock: c, Rand: func() float64 { return 0 }}).ready()
			d := dice(schedule[:min(len(schedule), 1000)])
			model(t, e, c.Add, &d, new(strings.Builder))
		})
	})
}

// FuzzSlots: slots do what a counter and a list do.
func FuzzSlots(f *testing.F) {
	schedules(f, 300, func(t *testing.T, e *Env, _ func(time.Duration), dice *dice, story *strings.Builder) {
		most, used := 1+dice.IntN(4), 0
		s := &slots{max: most}
		var queue []Place
		for len(*dice) > 0 {
			switch dice.IntN(6) {
			case 0, 1:
				want := used < most && len(queue) == 0
				fmt.Fprint(story, " take")
				if got := s.Take(); got != want {
					t.Fatalf("taken is %v, want %v; %s", got, want, story)
				}
				if want {
					used++
				}
			case 2:
				fmt.Fprint(story, " join")
				queue = append(queue, s.Join(e.ticket()))
			case 3:
				if used > 0 {
					fmt.Fprint(story, " release")
					used--
					s.Release()
				}
			case 4:
				if len(queue) > 0 {
					i := dice.IntN(len(queue))
					fmt.Fprintf(story, " leave %d", i)
					queue[i].Leave()
					queue[i].Leave()
					queue = append(queue[:i:i], queue[i+1:]...)
				}
			case 5:
				most = 1 + dice.IntN(4)
				fmt.Fprintf(story, " max %d", most)
				s.Set(policy.InFlight{Max: most})
			}
			for i, late := 0, dice.IntN(4) == 0; i < len(queue) && !late; i++ {
				want := i == 0 && used < most
				if got := queue[i].Free(); got != want {
					t.Fatalf("place %d is free: %v, want %v; %s", i, got, want, story)
				}
				if !want {
					continue
				}
				select {
				case <-queue[0].Signal():
				default:
					t.Fatalf("nobody tells the first of a free slot; %s", story)
				}
				if !queue[0].Take() {
					t.Fatalf("the first cannot take a free slot; %s", story)
				}
				used, queue, i = used+1, queue[1:], -1
			}
		}
	})
}

// FuzzBreaker: the circuit does what a state, a time, three counters and a list do.
func FuzzBreaker(f *testing.F) {
	schedules(f, 200, func(t *testing.T, e *Env, pass func(time.Duration), dice *dice, story *strings.Builder) {
		set := policy.Defaults().Breaker
		set.Failures, set.Probes, set.Open, set.OpenMax, set.Ratio = 1+dice.IntN(3), 1+dice.IntN(3), time.Second, 5*time.Second, 0
		if dice.IntN(2) == 1 {
			set.Failures, set.Ratio, set.MinRequests, set.Window = 0, 0.5, 2+dice.IntN(4), windowSlices*200*time.Millisecond
		}
		b := newCircuit(e, policy.StateID{}, stateKey{name: "x"}, set)
		type verdict struct {
			slice  int64
			failed bool
		}
		type sent struct {
			pass  *Pass
			era   int
			lease instant
			given bool // up
		}
		var (
			out                          []*sent
			recent                       []verdict // of a closed circuit, if it goes by their ratio
			state                        = StateClosed
			until                        instant
			era, failures, good, opening int
		)
		trip := func() {
			state, era = StateOpen, era+1
			until = e.now() + min(time.Second<<opening, 5*time.Second)
			opening++
			good, failures, recent = 0, 0, nil
		}
		for len(*dice) > 0 {
			now := e.now()
			switch dice.IntN(5) {
			case 0:
				pass(time.Duration(dice.IntN(1500)) * time.Millisecond)
				fmt.Fprintf(story, "\n%v:", e.now())
			case 1, 2:
				p := new(Pass)
				_, got := b.Admit(t.Context(), false, p)
				if state == StateOpen && now >= until {
					state, era, good = StateHalfOpen, era+1, 0
				}
				want := state != StateOpen
				if state == StateHalfOpen {
					probes := 0
					for _, o := range out {
						if o.era == era && !o.given {
							probes++
						}
					}
					for _, o := range out {
						if probes+good >= set.Probes && o.era == era && !o.given && now >= o.lease {
							o.given = true
							probes--
						}
					}
					want = probes+good < set.Probes
				}
				fmt.Fprintf(story, " admit %v", got)
				if got != want {
					t.Fatalf("admitted is %v, want %v, as it is %v; %s", got, want, state, story)
				}
				if got {
					p.Sent()
					out = append(out, &sent{p, era, now + set.Open, false})
				}
			case 3:
				if len(out) == 0 {
					continue
				}
				i := dice.IntN(len(out))
				o := out[i]
				out = append(out[:i:i], out[i+1:]...)
				v := Verdict(dice.IntN(3))
				fmt.Fprintf(story, " era %d says %v", o.era, v)
				b.Settle(t.Context(), o.pass, v)
				b.Settle(t.Context(), o.pass, VerdictFailure)
				late := state == StateHalfOpen && (o.given || now > o.lease)
				switch failed := v == VerdictFailure; {
				case o.era != era || v == VerdictNeutral || failed && late:
				case state == StateClosed && set.Ratio > 0:
					slice := int64(e.now() / (200 * time.Millisecond))
					recent = append(recent, verdict{slice, failed})
					n, bad := 0, 0
					for _, v := range recent {
						if slice-v.slice < windowSlices {
							n++
							if v.failed {
								bad++
							}
						}
					}
					if n >= set.MinRequests && 2*bad >= n {
						trip()
					}
				case state == StateClosed && failed:
					if failures++; failures >= set.Failures {
						trip()
					}
				case state == StateClosed:
					failures = 0
				case state == StateHalfOpen && failed:
					trip()
				case state == StateHalfOpen:
					good++
				}
			case 4:
				set.Probes = 1 + dice.IntN(3)
				fmt.Fprintf(story, " probes %d", set.Probes)
				b.Set(set)
			}
			if state == StateHalfOpen && good >= set.Probes {
				state, era, failures, opening = StateClosed, era+1, 0, 0
			}
			want := state
			if state == StateOpen && e.now() >= until {
				want = StateHalfOpen
			}
			if got := b.Status().State; got != want {
				t.Fatalf("the circuit is %v, want %v; %s", got, want, story)
			}
		}
	})
}

// FuzzBucket: in no window do more turns come than burst + rate x window
// allows, whatever servers, callers and updates do meanwhile; and all that wait
// get their turns, in their order.
func FuzzBucket(f *testing.F) {
	schedules(f, 200, func(t *testing.T, e *Env, pass func(time.Duration), dice *dice, story *strings.Builder) {
		burst := 1 + dice.IntN(4)
		numbers := policy.Rate{PerSecond: 1, Burst: burst}
		b := e.newBucket(numbers)
		type spending struct {
			at instant
			n  int
		}
		var spent []spending
		var queue []*turn
		end, paused := false, instant(0)
		// collect takes what is there. Who keeps a place may have to wait for
		// something else first.
		collect := func() {
			for i := 0; i < len(queue); i++ {
				q := queue[i]
				over, refused, again := q.Due()
				switch {
				case refused > 0:
					t.Fatalf("a turn without a limit is refused; %s", story)
				case i == 0 && !over && again.IsZero():
					t.Fatalf("the first has nothing to wait for; %s", story)
				case !over || q.keeps && !end && dice.IntN(8) > 0 || !q.Take():
					continue
				}
				fmt.Fprintf(story, " %d go", q.n)
				spent = append(spent, spending{e.now(), q.n})
				queue = slices.Delete(queue, i, i+1)
				i--
			}
		}
		step := func(d time.Duration) {
			for ; d > 0; d -= 100 * time.Millisecond {
				pass(min(100*time.Millisecond, d))
				collect()
			}
			fmt.Fprintf(story, "\n%v:", e.now())
		}
		for len(*dice) > 0 {
			n := 1 + dice.IntN(burst)
			switch dice.IntN(8) {
			case 0, 1:
				step(time.Duration(dice.IntN(2500)) * time.Millisecond)
			case 2, 3:
				fmt.Fprintf(story, " join %d", n)
				queue = append(queue, b.Join(n, time.Time{}, e.ticket(), dice.IntN(2) == 0).(*turn))
			case 4:
				if len(queue) > 0 {
					i := dice.IntN(len(queue))
					fmt.Fprintf(story, " leave %d", i)
					queue[i].Leave()
					if dice.IntN(2) == 0 { // and come back
						fmt.Fprint(story, " rejoin")
						queue[i] = b.Join(queue[i].n, time.Time{}, queue[i].ticket, true).(*turn)
					} else {
						queue = append(queue[:i:i], queue[i+1:]...)
					}
				}
			case 5:
				if b.Take(n) {
					if dice.IntN(2) == 0 {
						b.Refund(n)
						break
					}
					fmt.Fprintf(story, " take %d", n)
					spent = append(spent, spending{e.now(), n})
				}
			case 6:
				fmt.Fprint(story, " pause")
				until := e.now() + time.Duration(1+dice.IntN(1500))*time.Millisecond
				b.Pause(e.time(until))
				paused = max(paused, until)
			case 7:
				b.Set(numbers)
			}
			collect()
		}
		end = true
		left := max(0, paused-e.now())
		for _, q := range queue {
			left += time.Duration(q.n)*time.Second + 100*time.Millisecond // late to be collected
		}
		step(left)
		if len(queue) > 0 {
			t.Fatalf("%d still wait after %v; %s", len(queue), left, story)
		}
		const rounding = 0.11 // a turn may be collected later than it is due
		for i := range spent {
			sum := 0
			for _, s := range spent[i:] {
				sum += s.n
				if window := s.at - spent[i].at; float64(sum) > float64(burst)+window.Seconds()+rounding {
					t.Fatalf("%d turns in %v from %v on, with burst %d; %s", sum, window, spent[i].at, burst, story)
				}
			}
		}
		sum := 0
		for _, s := range spent {
			if paused == 0 || s.at < paused {
				continue
			}
			sum += s.n
			if since := s.at - paused; float64(sum) > max(1, 1+since.Seconds()+rounding) {
				t.Fatalf("%d turns within %v of the end of a pause; %s", sum, since, story)
			}
		}
		step(5 * time.Second)
		if idle, _ := b.Rests(); !idle {
			t.Fatalf("after a minute, the bucket is not as new; %s", story)
		}
	})
}

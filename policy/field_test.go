package policy

import (
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestRulesNameFields(t *testing.T) {
	for path := range rules {
		if byPath[path] == nil {
			t.Errorf("there is a rule for %s, but no field", path)
		}
	}
}

func TestEveryValueHasARange(t *testing.T) {
	for i := range fields {
		f := &fields[i]
		if typ := reflect.TypeFor[Settings]().FieldByIndex(f.index).Type; f.ok == nil && typ.Kind() != reflect.Func {
			t.Errorf("%s takes any value", f.path())
		}
	}
}

var withoutDefault = map[string]bool{
	"DeadlineHeader": true, "Retry.Check": true, "Retry.Backoff": true, "Hedge.Delay": true, "Breaker.Ratio": true,
	"Rate.PerSecond": true, "Rate.MaxWait": true, "Rate.Cost": true, "InFlight.Max": true,
	"Stream.Dialect": true, "Stream.Classify": true,
}

func TestDefaultsAreComplete(t *testing.T) {
	s := Defaults()
	for r, v := range s.all() {
		if v.IsZero() != withoutDefault[r.path()] {
			t.Errorf("%s is %v", r, v)
		}
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"Rate": "rate", "PerSecond": "per_second", "InFlight": "in_flight", "MinRateWindow": "min_rate_window"} {
		if got := snake(name); got != want {
			t.Errorf("snake(%q) = %q, want %q", name, got, want)
		}
	}
}

// randomSettings sets each field with a chance of one in sparse, to a value that
// is more often sound than not.
func randomSettings(rng *rand.Rand, sparse int) (s Settings) {
	s.Budgets = map[string]Rate{"a": {}, "b": {}}
	for r, v := range s.all() {
		if rng.IntN(sparse) > 0 {
			continue
		}
		var value any
		switch v.Interface().(type) {
		case time.Duration:
			value = pick(rng, Off, 1, time.Millisecond, time.Second, 5*time.Second, 30*time.Second, time.Minute, 10*time.Minute, -5, math.MaxInt64)
		case int:
			value = pick(rng, Off, 1, 2, 3, 10, 20, 1000, -7)
		case int64:
			value = pick[int64](rng, Off, 1, 1<<16, 1<<50)
		case float64:
			value = pick(rng, Off, 0.1, 0.5, 1, 10, 1e300, math.NaN(), math.Inf(1))
		case Toggle:
			value = pick[Toggle](rng, On, Off)
		case string:
			value = pick(rng, "openai-chat", "gemini", "openai")
		case []int:
			value = pick(rng, []int{}, []int{429, 503}, []int{200})
		case KeyFunc:
			value = pick[KeyFunc](rng, ByOrigin, ByRoute)
		case func(*http.Request) int:
			value = func(*http.Request) int { return 2 }
		default:
			continue
		}
		r.put(&s, reflect.ValueOf(value))
	}
	return s
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// equal compares settings by what they say: functions by their code, and NaN
// equals itself.
func equal(a, b Settings) bool {
	x, y := flattenRaw(a), flattenRaw(b)
	return reflect.DeepEqual(x, y)
}

func flattenRaw(s Settings) map[string]string {
	m := map[string]string{}
	for r, v := range s.all() {
		if v.IsZero() {
			continue
		}
		m[r.String()] = r.show(v)
	}
	return m
}

package page

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/transport"
)

// longestGaps is how many gaps of a stream are shown.
const longestGaps = 8

// Watch is an observer that keeps what a page shows of calls: those under way,
// the last that failed and the slowest of the last minutes, of each route, and
// how the shared state went in the last minutes. Until a page shows it, it is told
// of nothing. Its memory is bounded. [NewWatch] makes one: the zero value is of no
// use. It is safe for concurrent use, by several transports and pages too.
type Watch struct {
	*tracer // which is told without a detour

	on    atomic.Pointer[watching]
	mu    sync.Mutex // to be turned on
	kept  kept
	lines lines
}

type tracer = layers.Tracer

// NewWatch returns a Watch that has seen nothing.
func NewWatch() *Watch {
	w := new(Watch)
	w.tracer = layers.NewStreamTracer(longestGaps, w.ended)
	return w
}

// watching is a Watch that a page shows.
type watching struct {
	*Watch
	name string // of all its calls: another program's have another
}

// watch turns the Watch on, for one transport or one more.
func (w *Watch) watch(t *transport.Transport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on.Load() == nil {
		w.on.Store(&watching{w, strconv.FormatInt(t.Clock().Now().UnixMilli(), 36)})
	}
	w.lines.add(t)
}

// Idle reports that no page shows the Watch; see [layers.Observer].
func (w *Watch) Idle() bool { return w.on.Load() == nil }

// ended keeps a call that failed or was slow. It is on the path of the call, and
// so only stores what the tracer has made.
func (w *Watch) ended(_ context.Context, t layers.Trace) {
	now := t.End.UnixNano()
	if w.lines.due(now) {
		go w.rest(t.End)
	}
	w.kept.of(t.Route).add(&t, failed(&t), now)
}

// rest is what is done from time to time, beside the calls.
func (w *Watch) rest(now time.Time) {
	w.kept.shorten()
	w.lines.sample(now)
}

func failed(t *layers.Trace) bool {
	return t.Err != nil && !givenUp(t) ||
		t.Status >= http.StatusInternalServerError || t.Status == http.StatusTooManyRequests
}

// givenUp reports that the caller ended a call. It may also fail for what another
// has canceled, such as the context that a layer mints its tokens with.
func givenUp(t *layers.Trace) bool { return t.Abandoned && errors.Is(t.Err, context.Canceled) }

// call is a call that a page shows.
type call struct {
	layers.Trace
	ID string // which names it in links
}

func (w *watching) call(t layers.Trace) call {
	return call{t, w.name + "-" + strconv.FormatInt(t.Number, 10)}
}

// find returns the call with an ID.
func (w *watching) find(id string) (c call, found bool) {
	digits, ours := strings.CutPrefix(id, w.name+"-")
	number, err := strconv.ParseInt(digits, 10, 64)
	if !ours || err != nil {
		return c, false
	}
	t, found := w.kept.find(number)
	for _, live := range w.tracer.Live() {
		if !found && live.Number == number {
			t, found = live, true
		}
	}
	return w.call(t), found
}

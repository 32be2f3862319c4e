package derive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// version is that of the JSON form.
const version = 1

type snapshotJSON struct {
	Version int         `json:"version"`
	Groups  []groupJSON `json:"groups"`
}

type groupJSON struct {
	Route    string                   `json:"route"`
	Bucket   string                   `json:"bucket,omitempty"`
	Outcomes Outcomes                 `json:"outcomes"`
	Arrivals *arrivalsJSON            `json:"arrivals,omitempty"`
	Samples  map[Quantity]*sampleJSON `json:"samples"`
}

// arrivalsJSON has pairs of a minute since 1970 and the calls in it.
type arrivalsJSON struct {
	First   time.Time   `json:"first"`
	Last    time.Time   `json:"last"`
	Minutes [][2]uint64 `json:"minutes"`
}

type sampleJSON struct {
	Done    *histogramJSON `json:"done,omitempty"`
	Longest *histogramJSON `json:"longest,omitempty"`
	Cut     *histogramJSON `json:"cut,omitempty"`
	Failed  uint64         `json:"failed,omitempty"`
}

// histogramJSON has pairs of a bin's index and the count in it. The index is
// that of binOf: 0 to 255 are nanoseconds, then there are 128 to each doubling.
type histogramJSON struct {
	Max  time.Duration `json:"max_ns"`
	Bins [][2]uint64   `json:"bins"`
}

// MarshalJSON implements json.Marshaler. Equal snapshots have equal JSON.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	out := snapshotJSON{Version: version, Groups: []groupJSON{}}
	for _, g := range s.Groups() {
		r := s.groups[g]
		j := groupJSON{Route: g.Route, Bucket: g.Bucket, Outcomes: r.outcomes, Samples: map[Quantity]*sampleJSON{}}
		if a := &r.arrivals; !a.first.IsZero() {
			j.Arrivals = &arrivalsJSON{First: a.first.UTC(), Last: a.last.UTC(), Minutes: [][2]uint64{}}
			for _, m := range a.minutes {
				j.Arrivals.Minutes = append(j.Arrivals.Minutes, [2]uint64{uint64(m.minute), m.calls})
			}
		}
		for q, sample := range r.samples {
			if !sample.empty() {
				j.Samples[q] = &sampleJSON{
					Done: sample.Done.toJSON(), Longest: sample.Longest.toJSON(), Cut: sample.Cut.toJSON(), Failed: sample.Failed,
				}
			}
		}
		out.Groups = append(out.Groups, j)
	}
	return json.Marshal(out)
}

func (h *Histogram) toJSON() *histogramJSON {
	if h.count == 0 {
		return nil
	}
	j := &histogramJSON{Max: h.max}
	for i, n := range h.all {
		j.Bins = append(j.Bins, [2]uint64{uint64(i), n})
	}
	return j
}

// UnmarshalJSON implements json.Unmarshaler. It puts what was saved in the place
// of what s has, and refuses what no Snapshot can have written; s is then as it
// was.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	var in snapshotJSON
	if err := decode(data, &in); err != nil {
		return err
	}
	var fresh Snapshot
	for i := range in.Groups {
		j := &in.Groups[i]
		g := Group{j.Route, j.Bucket}
		if fresh.groups[g] != nil {
			return fmt.Errorf("snapshot: %v is there twice", g)
		}
		if err := fresh.record(g).fromJSON(j); err != nil {
			return fmt.Errorf("snapshot: %v: %w", g, err)
		}
	}
	*s = fresh
	return nil
}

func decode(data []byte, in *snapshotJSON) error {
	// A name that is no UTF-8 would be read as another.
	if !utf8.Valid(data) {
		return errors.New("snapshot: not UTF-8")
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if head.Version != version {
		return fmt.Errorf("snapshot: version %d is not known, only %d is", head.Version, version)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("snapshot: there is something after its end")
	}
	return nil
}

func (r *record) fromJSON(j *groupJSON) error {
	r.outcomes = j.Outcomes
	if j.Arrivals != nil {
		if err := r.arrivals.fromJSON(j.Arrivals); err != nil {
			return fmt.Errorf("arrivals: %w", err)
		}
	}
	for q, in := range j.Samples {
		if !slices.Contains(quantities, q) {
			return fmt.Errorf("there is no quantity %q", q)
		}
		if in == nil {
			return fmt.Errorf("%s: null", q)
		}
		sample := r.sample(q)
		sample.Failed = in.Failed
		for name, h := range map[string]struct {
			to   *Histogram
			from *histogramJSON
		}{"done": {&sample.Done, in.Done}, "longest": {&sample.Longest, in.Longest}, "cut": {&sample.Cut, in.Cut}} {
			if h.from == nil {
				continue
			}
			if err := h.to.fromJSON(h.from); err != nil {
				return fmt.Errorf("%s, %s: %w", q, name, err)
			}
		}
	}
	return nil
}

func (a *arrivals) fromJSON(j *arrivalsJSON) error {
	if j.First.IsZero() || j.Last.Before(j.First) || len(j.Minutes) > keptMinutes {
		return errors.New("first and last are not in order, or there are more minutes than are kept")
	}
	a.first, a.last = j.First, j.Last
	for i, m := range j.Minutes {
		if m[0] > math.MaxInt64/60 || m[1] == 0 || i > 0 && m[0] <= j.Minutes[i-1][0] {
			return errors.New("the minutes are not ascending, or one has no calls")
		}
		a.minutes = append(a.minutes, arrived{int64(m[0]), m[1]})
	}
	if n := len(a.minutes); n > 0 && a.minutes[n-1].minute-a.minutes[0].minute >= keptMinutes {
		return errors.New("the minutes span more than a day")
	}
	return nil
}

func (h *Histogram) fromJSON(j *histogramJSON) error {
	for i, b := range j.Bins {
		if b[0] >= bins || b[1] == 0 || i > 0 && b[0] <= j.Bins[i-1][0] {
			return errors.New("the bins are not ascending, or one is empty")
		}
		h.add(int(b[0]), b[1], 0)
	}
	if n := len(j.Bins); n == 0 || binOf(j.Max) != int(j.Bins[n-1][0]) || j.Max < 0 {
		return errors.New("the maximum is not in the last bin")
	}
	h.max = j.Max
	return nil
}

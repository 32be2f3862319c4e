package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Why a cursor is refused. The error that Run fails with says more, and what
// to do about it.
var (
	// ErrCorrupt is a cursor that is not as it was written.
	ErrCorrupt = errors.New("the cursor is corrupt")
	// ErrForeign is a cursor of another job, or of other items.
	ErrForeign = errors.New("the cursor is another job's")
	// ErrNewer is a cursor of a format that this version does not know.
	ErrNewer = errors.New("the cursor is of a newer format")
	// ErrInUse is a cursor that another process, or job, is at work with.
	ErrInUse = errors.New("the cursor is in use")
)

// Cursor says how far a job has come. Its text is for people to read, too:
//
//	weir batch cursor, format 1
//	job "summaries of 2026-01-05"
//	items 50000 0f4d…
//	done 0-41022 41024 41026-41031
//	failed 41023
//	sum 9be2…
//
// Items are counted from zero. Each range names its first and last; their
// number is what bounds the size, and is about that of the workers and the
// failed items. The items line has the SHA-256 of their names, and the last line
// that of all lines before it.
//
// The zero Cursor is of no job. A Cursor is not safe for concurrent use while
// it is being unmarshaled.
type Cursor struct {
	job          string
	items        int
	sum          [sha256.Size]byte // of the names of the items
	done, failed spans
}

// Job returns the name of the job.
func (c *Cursor) Job() string { return c.job }

// Items returns how many items the job has.
func (c *Cursor) Items() int { return c.items }

// Done returns how many of them are done.
func (c *Cursor) Done() int { return c.done.count() }

// IsDone reports whether an item is done. The first item is 0.
func (c *Cursor) IsDone(item int) bool { return c.done.has(item) }

// HasFailed reports whether an item failed when it was last tried.
func (c *Cursor) HasFailed(item int) bool { return c.failed.has(item) }

const (
	magic  = "weir batch cursor, format "
	format = 1
)

// MarshalText implements encoding.TextMarshaler. It does not fail.
func (c *Cursor) MarshalText() ([]byte, error) {
	b := fmt.Appendf(nil, "%s%d\njob %q\nitems %d %x\n", magic, format, c.job, c.items, c.sum)
	b = c.done.append(append(b, "done"...))
	b = c.failed.append(append(b, "\nfailed"...))
	return seal(append(b, '\n')), nil
}

// seal adds the last line.
func seal(b []byte) []byte { return fmt.Appendf(b, "sum %x\n", sha256.Sum256(b)) }

func (s spans) append(b []byte) []byte {
	for _, r := range s {
		b = strconv.AppendInt(append(b, ' '), int64(r.lo), 10)
		if r.hi > r.lo+1 {
			b = strconv.AppendInt(append(b, '-'), int64(r.hi-1), 10)
		}
	}
	return b
}

// UnmarshalText implements encoding.TextUnmarshaler. It fails with ErrNewer or
// ErrCorrupt, and then leaves the cursor as it was.
func (c *Cursor) UnmarshalText(text []byte) error {
	first, _, _ := strings.Cut(string(text[:min(len(text), 80)]), "\n")
	number, known := strings.CutPrefix(first, magic)
	version, err := strconv.Atoi(number)
	if !known || err != nil || version < 1 {
		return fmt.Errorf("%w: it does not begin with %q and a number", ErrCorrupt, magic)
	}
	if version > format {
		return fmt.Errorf("%w: it is of format %d, and this program knows %d; run the program that wrote it", ErrNewer, version, format)
	}
	const last = len("sum \n") + 2*sha256.Size
	body := text[:max(0, len(text)-last)]
	if !bytes.Equal(seal(bytes.Clone(body)), text) {
		return fmt.Errorf("%w: its checksum is that of another text", ErrCorrupt)
	}
	var read Cursor
	if err := read.parse(string(body)); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// There is one text of a cursor, and no other is taken for it.
	if again, _ := read.MarshalText(); !bytes.Equal(again, text) {
		return fmt.Errorf("%w: it is not as this program writes it", ErrCorrupt)
	}
	*c = read
	return nil
}

// parse reads all lines but the last.
func (c *Cursor) parse(body string) (err error) {
	lines := strings.Split(body, "\n")
	names := []string{"", "job ", "items ", "done", "failed", ""}
	if len(lines) != len(names) {
		return fmt.Errorf("it has %d lines", len(lines))
	}
	for i, name := range names {
		rest, ok := strings.CutPrefix(lines[i], name)
		if !ok {
			return fmt.Errorf("its line %d does not begin with %q", i+1, name)
		}
		lines[i] = rest
	}
	if c.job, err = strconv.Unquote(lines[1]); err != nil {
		return fmt.Errorf("the name of its job is not quoted: %w", err)
	}
	number, sum, _ := strings.Cut(lines[2], " ")
	if c.items, err = strconv.Atoi(number); err != nil || c.items < 0 {
		return fmt.Errorf("%q is no number of items", number)
	}
	if n, err := hex.Decode(c.sum[:], []byte(sum[:min(len(sum), 2*len(c.sum))])); err != nil || n != len(c.sum) {
		return errors.New("the checksum of its items is none")
	}
	if c.done, err = parseSpans(lines[3], c.items); err != nil {
		return err
	}
	c.failed, err = parseSpans(lines[4], c.items)
	return err
}

// parseSpans reads ranges of numbers below n.
func parseSpans(text string, n int) (spans, error) {
	var s spans
	before := -2 // the last of the range before
	for word := range strings.FieldsSeq(text) {
		lo, hi, isRange := strings.Cut(word, "-")
		if !isRange {
			hi = lo
		}
		first, err := strconv.Atoi(lo)
		last, err2 := strconv.Atoi(hi)
		if err != nil || err2 != nil || first-1 <= before || last < first || last >= n {
			return nil, fmt.Errorf("%q is no range of its %d items, or out of order", word, n)
		}
		s = append(s, span{first, last + 1})
		before = last // ranges that touch would be one
	}
	return s, nil
}

// sumOf identifies items, by their names and their order.
func sumOf(names []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	var size [binary.MaxVarintLen64]byte
	for _, name := range names {
		h.Write(binary.AppendUvarint(size[:0], uint64(len(name))))
		h.Write([]byte(name))
	}
	h.Sum(sum[:0])
	return sum
}

// resume makes c, which was read from a store, the cursor of the job that begins
// with fresh, or says why it is not.
func (c *Cursor) resume(fresh *Cursor, names []string) error {
	if c.job != fresh.job {
		return fmt.Errorf("%w: it belongs to %q, and this is %q; keep the cursor of each job in a place of its own", ErrForeign, c.job, fresh.job)
	}
	if c.items > len(names) {
		return fmt.Errorf("%w: it has %d items, and now there are %d; run the job with all of them, and add new ones at the end", ErrForeign, c.items, len(names))
	}
	sum := fresh.sum
	if c.items < len(names) {
		sum = sumOf(names[:c.items])
	}
	if c.sum != sum {
		return fmt.Errorf("%w: its %d items have other names, or another order, than now; restore them, and add new ones at the end", ErrForeign, c.items)
	}
	c.items, c.sum = fresh.items, fresh.sum
	return nil
}

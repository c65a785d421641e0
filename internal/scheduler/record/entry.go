package record

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// The actions of records.
const (
	Place   = "place"
	Hold    = "hold"
	Release = "release"
	Move    = "move"   // to another cluster, while it runs
	Refuse  = "refuse" // to hold what might wait: it is counted, and no record is kept of it
)

// An Entry is a decision, as its maker has it at hand: the record as far as its maker knows it, and what was decided
// on. That is looked at only while [Recorder.Record] or [Recorder.Draft] runs, except sites and profiles, which never
// change.
type Entry struct {
	ledger.Record

	Question   *sched.Snapshot // of one job; nil: there is none
	NoSnapshot string          // why
}

// maxCandidates is how many nodes a record holds. Those that any strategy would choose are among them, so that another
// strategy decides on them as it would on all.
const maxCandidates = 64

// scribe turns decisions into records. It is used by one goroutine.
type scribe struct {
	zip *gzip.Writer
	buf bytes.Buffer
}

// write makes the record of a decision. A snapshot that cannot be written leaves a record without one, that says so.
func (s *scribe) write(e *Entry) ledger.Record {
	r := bare(e)
	if e.Question == nil || len(e.Question.Queue) == 0 {
		r.Message = join(r.Message, e.NoSnapshot)
		return r
	}
	estimate(&r, e)
	if err := s.snapshot(&r, e); err != nil {
		r.Message = join(r.Message, "without its snapshot: "+err.Error())
	}
	return r
}

// bare is the record of a decision without its snapshot, and what follows from that.
func bare(e *Entry) ledger.Record {
	r := e.Record
	r.ID, r.At, r.Start, r.Quality = rand.Text(), r.At.UTC(), r.Start.UTC(), energy.Estimated
	return r
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// estimate says what the decision was expected to bring about.
func estimate(r *ledger.Record, e *Entry) {
	job := &e.Question.Queue[0]
	start := e.Question.Now
	if !e.Start.IsZero() {
		start = e.Start
	}
	r.Start, r.End = start.UTC(), start.Add(job.Duration).UTC()
	i := slices.IndexFunc(e.Question.Nodes, func(n *sched.Node) bool { return n.Name == e.Node })
	if e.Node == "" || i < 0 {
		return
	}
	node := e.Question.Nodes[i]
	window := sched.Window{Start: start, End: start.Add(node.Runtime(job))}
	cost := e.Question.Estimate(job, node, window)
	r.End, r.Energy, r.Carbon, r.Cost = window.End.UTC(), cost.Energy, cost.Carbon, float64(cost.Cost)
	if series := node.Site.Carbon.Series; series != nil && series.Covers(start, start) {
		r.Intensity = series.At(start)
	}
}

func (s *scribe) snapshot(r *ledger.Record, e *Entry) error {
	cut := *e.Question
	if all := len(cut.Nodes); all > maxCandidates {
		if greedy, err := strategy.New(e.Strategy); err == nil {
			cut.Nodes = strategy.Candidates(e.Question, e.Node, greedy, maxCandidates)
			r.Message = join(r.Message, fmt.Sprintf("%d of %d candidates are recorded", len(cut.Nodes), all))
		}
	}
	encoded, err := codec.Encode(&cut)
	if err != nil {
		return err
	}
	r.Digest = codec.Digest(encoded)
	s.buf.Reset()
	if s.zip == nil {
		s.zip, _ = gzip.NewWriterLevel(&s.buf, gzip.BestSpeed) // the level is a valid one
	}
	s.zip.Reset(&s.buf)
	_, err = s.zip.Write(encoded)
	if err := errors.Join(err, s.zip.Close()); err != nil {
		return err
	}
	if s.buf.Len() > ledger.MaxSnapshot {
		return fmt.Errorf("it has %d bytes", s.buf.Len())
	}
	r.Snapshot = bytes.Clone(s.buf.Bytes())
	return nil
}

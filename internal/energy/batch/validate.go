package batch

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Limits of a batch. Agents stay far below them, and a controller rejects larger batches before they consume
// memory.
const (
	MaxBytes  = 16 << 20 // of a batch in JSON, before it is compressed
	MaxShares = 10_000
	MaxID     = 1024 // bytes of a consumer's ID
	MaxName   = 253  // bytes of the name of a node, a boot, an epoch, a host, a virtual machine
	MaxSource = 256
)

// Others is the consumer for ended consumers that did not fit into a batch; see [Condense].
const Others = "others"

// Mixed is the idle policy of a batch folded from batches of different policies.
const Mixed = "mixed"

// The range of wall-clock times that can be encoded. The wall clock of a node may be inaccurate, but must be in
// this range.
var (
	earliest = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// SetWall sets Start and End of an interval with known times since boot, given the wall-clock time of its end.
// Times out of range are clamped, because an inaccurate clock must not cause a loss of energy.
func (b *Batch) SetWall(end time.Time) {
	length := b.EndSinceBoot - b.StartSinceBoot
	b.End = end.Round(0).UTC()
	if first := earliest.Add(length); b.End.Before(first) {
		b.End = first
	}
	if b.End.After(latest) {
		b.End = latest
	}
	b.Start = b.End.Add(-length)
}

// Validate returns an error if b is invalid. It does not trust the sender: if it returns nil, sums over the fields
// of b cannot overflow, its strings can be printed and its energy is conserved. It does not check whether the
// numbers are plausible for the node.
func (b *Batch) Validate() error {
	if b.Version != Version {
		return fmt.Errorf("unsupported version %d: want %d", b.Version, Version)
	}
	for _, check := range []func() error{b.checkNames, b.checkInterval, b.checkPolicy, b.checkShares} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := energy.CheckGPU(b.Idle, b.GPUIdle, b.Unknown, b.GPUUnknown); err != nil {
		return err
	}
	return energy.CheckConserved(b.Measured, b.Idle, b.Platform, b.Unknown, b.Shares)
}

func (b *Batch) checkNames() error {
	err := errors.Join(b.Stream.check(), CheckText("source", b.Source, MaxSource))
	if b.Parent == nil {
		return err
	}
	if b.Parent.Host == b.Stream.Node {
		err = errors.Join(err, fmt.Errorf("parent.host %q is the node itself", b.Parent.Host))
	}
	return errors.Join(err,
		CheckText("parent.host", b.Parent.Host, MaxName),
		CheckText("parent.vm", b.Parent.VM, MaxName),
	)
}

func (s *Stream) check() error {
	return errors.Join(
		CheckText("stream.node", s.Node, MaxName),
		CheckText("stream.boot", s.Boot, MaxName),
		CheckText("stream.epoch", s.Epoch, MaxName),
	)
}

func (b *Batch) checkInterval() error {
	length := b.EndSinceBoot - b.StartSinceBoot
	switch {
	case b.First == 0 || b.First > b.Last || b.Last == math.MaxUint64:
		return fmt.Errorf("invalid numbers %d to %d: want at least 1 and a nonempty range", b.First, b.Last)
	case b.StartSinceBoot < 0 || length < 0:
		return fmt.Errorf("invalid interval from %v to %v since boot", b.StartSinceBoot, b.EndSinceBoot)
	case b.Start.Before(earliest) || b.End.After(latest):
		return fmt.Errorf("invalid interval from %v to %v", b.Start, b.End)
	case b.End.Sub(b.Start) != length:
		return fmt.Errorf("interval is %v on the wall clock, but %v since boot", b.End.Sub(b.Start), length)
	case b.Unmeasured < 0 || b.Unmeasured > length:
		return fmt.Errorf("unmeasured time is %v in an interval of %v", b.Unmeasured, length)
	case length == 0 && b.Measured != 0:
		return fmt.Errorf("%d µJ in an empty interval", int64(b.Measured))
	}
	return nil
}

func (b *Batch) checkPolicy() error {
	switch b.IdlePolicy {
	case "apart", "requests", "equal", Mixed:
	default:
		return fmt.Errorf("idlePolicy is %.40q: want apart, requests, equal or %s", b.IdlePolicy, Mixed)
	}
	if b.Quality > energy.Measured {
		return fmt.Errorf("invalid quality %d", b.Quality)
	}
	return nil
}

func (b *Batch) checkShares() error {
	if len(b.Shares) > MaxShares {
		return fmt.Errorf("%d shares: want at most %d", len(b.Shares), MaxShares)
	}
	for i := range b.Shares {
		s := &b.Shares[i]
		if err := CheckConsumer(s.ID); err != nil {
			return err
		}
		if s.CPU < 0 {
			return fmt.Errorf("CPU time of %s is %v", s.ID, s.CPU)
		}
	}
	return nil
}

// CheckConsumer returns an error if id is not a valid consumer ID of a batch.
func CheckConsumer(id string) error {
	if id == energy.System || id == Others {
		return nil
	}
	if err := CheckText("consumer", id, MaxID); err != nil {
		return err
	}
	if _, container, ok := energy.PodOf(id); ok {
		if strings.Contains(container, "/") || strings.HasSuffix(id, "/") {
			return fmt.Errorf("consumer %.80q: want a container name without slashes", id)
		}
		return nil
	}
	_, isVM := energy.VMOf(id)
	if _, isCgroup := energy.CgroupOf(id); isVM || isCgroup {
		return nil
	}
	return fmt.Errorf("consumer %.80q: want pod/UID, pod/UID/CONTAINER, vm/NAME, cgroup/PATH, %s or %s", id,
		energy.System, Others)
}

// CheckText returns an error if receivers could not print s, log it or use it as a key.
func CheckText(what, s string, limit int) error {
	if s == "" || len(s) > limit {
		return fmt.Errorf("%s has %d bytes: want 1 to %d", what, len(s), limit)
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return checkUnicode(what, s)
		}
	}
	return nil
}

func checkUnicode(what, s string) error {
	// Invalid UTF-8 is decoded as RuneError, too.
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return fmt.Errorf("%s %.80q contains control characters or invalid UTF-8", what, s)
	}
	return nil
}

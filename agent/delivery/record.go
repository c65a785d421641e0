package delivery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// A record is what a file of the state directory holds: a batch, and what the agent has to know to go on after it.
//
//	magic    8 bytes, one for slots and one for batch files
//	checksum 4 bytes, CRC-32C of the rest, little-endian as all numbers of fixed length
//	length   4 bytes, of the payload
//	payload
//
// Numbers in the payload are varints; texts carry their length.
type record struct {
	seq        uint64        // of the Save that the state is of; the highest one on disk is what counts
	generation uint64        // of the stream: orders the streams of a directory
	broken     bool          // batches were sent that are not on disk: the stream cannot go on from here
	empty      bool          // nothing was added to the batch yet: only its number and stream count
	end        time.Duration // of what was added last to the stream
	batch      *batch.Batch
	state      []byte // the agent's; nil where a later record has it
}

const (
	slotMagic  = "KEslot1\n"
	batchMagic = "KEbatch\n"

	headerSize = 16
	maxFile    = 64 << 20
)

const (
	flagBroken = 1 << iota
	flagEmpty
	flagParent
	flagState
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// append adds r as it stands in a file.
func (r *record) append(to []byte, magic string) []byte {
	start := len(to)
	to = append(to, magic...)
	to = append(to, make([]byte, headerSize-len(magic))...)
	var flags uint64
	if r.broken {
		flags |= flagBroken
	}
	if r.empty {
		flags |= flagEmpty
	}
	if r.batch.Parent != nil {
		flags |= flagParent
	}
	if r.state != nil {
		flags |= flagState
	}
	to = binary.AppendUvarint(to, flags)
	to = binary.AppendUvarint(to, r.seq)
	to = binary.AppendUvarint(to, r.generation)
	to = binary.AppendVarint(to, int64(r.end))
	to = appendBatch(to, r.batch)
	if r.state != nil {
		to = binary.AppendUvarint(to, uint64(len(r.state)))
		to = append(to, r.state...)
	}
	payload := to[start+headerSize:]
	binary.LittleEndian.PutUint32(to[start+12:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(to[start+8:], crc32.Checksum(to[start+12:], castagnoli))
	return to
}

func appendBatch(to []byte, b *batch.Batch) []byte {
	to = binary.AppendUvarint(to, uint64(b.Version))
	to = appendText(to, b.Stream.Node)
	to = appendText(to, b.Stream.Boot)
	to = appendText(to, b.Stream.Epoch)
	to = binary.AppendUvarint(to, b.First)
	to = binary.AppendUvarint(to, b.Last)
	if b.Parent != nil {
		to = appendText(to, b.Parent.Host)
		to = appendText(to, b.Parent.VM)
	}
	to = binary.AppendVarint(to, b.End.Unix())
	to = binary.AppendUvarint(to, uint64(b.End.Nanosecond()))
	to = binary.AppendVarint(to, int64(b.StartSinceBoot))
	to = binary.AppendVarint(to, int64(b.EndSinceBoot))
	to = binary.AppendVarint(to, int64(b.Unmeasured))
	to = appendText(to, b.Source)
	to = append(to, byte(b.Quality))
	to = appendText(to, b.IdlePolicy)
	for _, v := range [...]energy.Microjoules{b.Measured, b.Idle, b.Platform, b.Unknown} {
		to = binary.AppendVarint(to, int64(v))
	}
	to = binary.AppendUvarint(to, uint64(len(b.Shares)))
	for i := range b.Shares {
		s := &b.Shares[i]
		to = appendText(to, s.ID)
		to = binary.AppendVarint(to, int64(s.Dynamic))
		to = binary.AppendVarint(to, int64(s.Idle))
		// One bit of the CPU time's varint says if the consumer has ended.
		cpu := uint64(s.CPU) << 1
		if s.Ended {
			cpu |= 1
		}
		to = binary.AppendUvarint(to, cpu)
	}
	return to
}

func appendText(to []byte, s string) []byte {
	to = binary.AppendUvarint(to, uint64(len(s)))
	return append(to, s...)
}

var errTorn = errors.New("the file is torn or damaged")

// decodeRecord reads what append wrote. Bytes after it are left alone, if exact is false: a slot may have been longer
// before.
func decodeRecord(data []byte, magic string, exact bool) (*record, error) {
	if len(data) < headerSize || string(data[:8]) != magic {
		return nil, errTorn
	}
	length := uint64(binary.LittleEndian.Uint32(data[12:]))
	if length > uint64(len(data)-headerSize) || exact && length != uint64(len(data)-headerSize) {
		return nil, errTorn
	}
	data = data[:headerSize+int(length)]
	if crc32.Checksum(data[12:], castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, errTorn
	}
	d := decoder{rest: data[headerSize:]}
	r := d.record()
	if d.failed || len(d.rest) != 0 {
		return nil, errTorn
	}
	if r.empty {
		if r.batch.First == 0 || r.batch.First == math.MaxUint64 || r.batch.Stream.Epoch == "" {
			return nil, errTorn
		}
		return r, nil
	}
	if err := r.batch.Validate(); err != nil {
		return nil, fmt.Errorf("validating batch: %w", err)
	}
	return r, nil
}

// A decoder takes a payload apart. After a failure it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) record() *record {
	flags := d.uint()
	r := &record{
		broken: flags&flagBroken != 0,
		empty:  flags&flagEmpty != 0,
		seq:    d.uint(), generation: d.uint(), end: time.Duration(d.int()),
	}
	r.batch = d.batch(flags&flagParent != 0)
	if flags&flagState != 0 {
		r.state = append([]byte{}, d.bytes()...)
	}
	return r
}

func (d *decoder) batch(parent bool) *batch.Batch {
	b := &batch.Batch{Version: int(min(d.uint(), math.MaxInt32))}
	b.Stream = batch.Stream{Node: d.text(), Boot: d.text(), Epoch: d.text()}
	b.First, b.Last = d.uint(), d.uint()
	if parent {
		b.Parent = &batch.Parent{Host: d.text(), VM: d.text()}
	}
	seconds, nanoseconds := d.int(), d.uint()
	b.End = time.Unix(seconds, int64(min(nanoseconds, 999_999_999))).UTC()
	b.StartSinceBoot, b.EndSinceBoot, b.Unmeasured = time.Duration(d.int()), time.Duration(d.int()),
		time.Duration(d.int())
	b.Start = b.End.Add(b.StartSinceBoot - b.EndSinceBoot)
	b.Source = d.text()
	b.Quality = energy.Quality(d.byte())
	b.IdlePolicy = d.text()
	for _, v := range [...]*energy.Microjoules{&b.Measured, &b.Idle, &b.Platform, &b.Unknown} {
		*v = energy.Microjoules(d.int())
	}
	b.Shares = d.shares()
	return b
}

func (d *decoder) shares() []energy.Share {
	const least = 4 // bytes of a share
	n := d.uint()
	if n > uint64(len(d.rest)/least) {
		d.failed = true
		return nil
	}
	shares := make([]energy.Share, n)
	for i := range shares {
		s := &shares[i]
		s.ID, s.Dynamic, s.Idle = d.text(), energy.Microjoules(d.int()), energy.Microjoules(d.int())
		cpu := d.uint()
		s.CPU, s.Ended = time.Duration(cpu>>1), cpu&1 != 0
	}
	return shares
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	return v * uint64(d.skip(n))
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.rest)
	return v * int64(d.skip(n))
}

// skip takes n bytes and returns 1, or 0 if there are none.
func (d *decoder) skip(n int) int {
	if n <= 0 || d.failed {
		d.failed = true
		return 0
	}
	d.rest = d.rest[n:]
	return 1
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.failed = true
		return 0
	}
	v := d.rest[0]
	return v * byte(d.skip(1))
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.rest)) {
		d.failed = true
		return nil
	}
	v := d.rest[:n]
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) text() string { return string(d.bytes()) }

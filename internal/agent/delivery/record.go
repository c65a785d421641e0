package delivery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// record is the content of a file in the state directory: a batch and the state needed to resume after it. It is
// encoded as
//
//	magic    8 bytes, different for slots and batch files
//	checksum 4 bytes, CRC-32C of the following bytes, little-endian like all fixed-size integers
//	length   4 bytes, length of the payload
//	payload
//
// Integers in the payload are varints, and strings are prefixed with their length.
type record struct {
	seq        uint64        // sequence number of the Save that wrote the state; the highest one on disk is current
	generation uint64        // generation of the stream; orders the streams in a directory
	broken     bool          // batches that are not on disk were sent, so the stream cannot be resumed
	empty      bool          // the batch is empty; only its number and stream are valid
	end        time.Duration // end of the last attribution of the stream, since boot
	batch      *batch.Batch
	state      []byte // state of the agent; nil if a later record contains it
}

const (
	slotMagic  = "KEslot1\n"
	batchMagic = "KEbatch\n"

	headerSize = 16
	maxFile    = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// append appends the encoded record.
func (r *record) append(to []byte, magic string) []byte {
	start := len(to)
	to = append(to, magic...)
	c := codec.Writer(append(to, make([]byte, headerSize-len(magic))...))
	r.code(&c)
	to = c.Data()
	binary.LittleEndian.PutUint32(to[start+12:], uint32(len(to)-start-headerSize))
	binary.LittleEndian.PutUint32(to[start+8:], crc32.Checksum(to[start+12:], castagnoli))
	return to
}

// code encodes or decodes the payload.
func (r *record) code(c *codec.Codec) {
	parent, state := r.batch.Parent != nil, r.state != nil
	c.Flags(&r.broken, &r.empty, &parent, &state)
	codec.Uint(c, &r.seq, &r.generation)
	codec.Int(c, &r.end)
	if c.Reading() && parent {
		r.batch.Parent = new(batch.Parent)
	}
	codeBatch(c, r.batch)
	if state {
		c.Bytes(&r.state)
	}
}

// codeBatch encodes or decodes a batch. Encoding does not modify the batch, because other goroutines may read it.
func codeBatch(c *codec.Codec, b *batch.Batch) {
	version, seconds, nanoseconds := uint64(b.Version), b.End.Unix(), uint64(b.End.Nanosecond())
	codec.Uint(c, &version)
	c.Text(&b.Stream.Node)
	c.Text(&b.Stream.Boot)
	c.Text(&b.Stream.Epoch)
	codec.Uint(c, &b.First, &b.Last)
	if b.Parent != nil {
		c.Text(&b.Parent.Host)
		c.Text(&b.Parent.VM)
	}
	codec.Int(c, &seconds)
	codec.Uint(c, &nanoseconds)
	codec.Int(c, &b.StartSinceBoot, &b.EndSinceBoot, &b.Unmeasured)
	c.Text(&b.Source)
	c.Byte((*byte)(&b.Quality))
	c.Text(&b.IdlePolicy)
	codec.Int(c, &b.Measured, &b.Idle, &b.Platform, &b.Unknown, &b.GPUIdle, &b.GPUUnknown)
	if c.Reading() {
		b.Version = int(min(version, math.MaxInt32))
		b.End = time.Unix(seconds, int64(min(nanoseconds, 999_999_999))).UTC()
		b.Start = b.End.Add(b.StartSinceBoot - b.EndSinceBoot)
	}
	const least = 5 // minimum size of a share, in bytes
	for i := range codec.Elements(c, &b.Shares, least) {
		codeShare(c, &b.Shares[i])
	}
}

func codeShare(c *codec.Codec, s *energy.Share) {
	// The lowest bit of the CPU time's varint indicates that the consumer has ended.
	cpu := uint64(s.CPU) << 1
	if s.Ended {
		cpu |= 1
	}
	c.Text(&s.ID)
	codec.Int(c, &s.Dynamic, &s.Idle, &s.GPU)
	codec.Uint(c, &cpu)
	if c.Reading() {
		s.CPU, s.Ended = time.Duration(cpu>>1), cpu&1 != 0
	}
}

var errTorn = errors.New("the file is truncated or damaged")

// decodeRecord decodes a record written by append. If exact is false, trailing bytes are ignored, because a slot
// may have contained a longer record before.
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
	c := codec.Reader(data[headerSize:])
	r := &record{batch: new(batch.Batch)}
	if r.code(&c); !c.Whole() {
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

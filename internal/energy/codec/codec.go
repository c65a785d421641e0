// Package codec writes what an agent keeps and reads it back. One walk over the fields serves both directions, so that
// what is written and what is read cannot differ. Numbers are varints unless their size is given; texts carry their
// length.
package codec

import (
	"encoding/binary"
	"math"
)

// A Codec writes the fields that it is shown, or reads them. Once reading has failed, all that it reads is zero.
type Codec struct {
	data    []byte // what was written, or what is left to read
	reading bool
	failed  bool
}

// Writer returns a codec that appends.
func Writer(to []byte) Codec { return Codec{data: to} }

// Reader returns a codec that reads data. What it returns of texts and bytes are copies.
func Reader(data []byte) Codec { return Codec{data: data, reading: true} }

// Reading reports whether fields are read.
func (c *Codec) Reading() bool { return c.reading }

// Data returns what was written so far, or what is left to read.
func (c *Codec) Data() []byte { return c.data }

// Fail marks what is read as damaged. What is written is not: the reader finds it damaged.
func (c *Codec) Fail() {
	if c.reading {
		c.data, c.failed = c.data[:0], true
	}
}

// Failed reports whether what was read so far is damaged.
func (c *Codec) Failed() bool { return c.failed }

// Whole reports whether everything was read and nothing was damaged.
func (c *Codec) Whole() bool { return !c.failed && len(c.data) == 0 }

// Byte codes one byte.
func (c *Codec) Byte(v *byte) {
	switch {
	case !c.reading:
		c.data = append(c.data, *v)
	case len(c.data) == 0:
		c.Fail()
		*v = 0
	default:
		*v, c.data = c.data[0], c.data[1:]
	}
}

// Version codes the version byte want. Reading any other byte fails.
func (c *Codec) Version(want byte) {
	have := want
	if c.Byte(&have); have != want {
		c.Fail()
	}
}

// Flags codes up to eight truths in one byte.
func (c *Codec) Flags(flags ...*bool) {
	var bits byte
	for i, flag := range flags {
		if *flag {
			bits |= 1 << i
		}
	}
	if c.Byte(&bits); !c.reading {
		return
	}
	for i, flag := range flags {
		*flag = bits&(1<<i) != 0
	}
	if bits>>len(flags) != 0 {
		c.Fail()
	}
}

// Fixed codes a number in so many bytes, the lowest first.
func Fixed[T ~uint16 | ~uint32 | ~int64](c *Codec, size int, v *T) { *v = T(c.fixed(size, uint64(*v))) }

// Float32 codes a number by its bits.
func (c *Codec) Float32(v *float32) {
	*v = math.Float32frombits(uint32(c.fixed(4, uint64(math.Float32bits(*v)))))
}

// Float64 codes a number by its bits.
func (c *Codec) Float64(v *float64) { *v = math.Float64frombits(c.fixed(8, math.Float64bits(*v))) }

func (c *Codec) fixed(size int, v uint64) uint64 {
	var word [8]byte
	switch {
	case !c.reading:
		binary.LittleEndian.PutUint64(word[:], v)
		c.data = append(c.data, word[:size]...)
		return v
	case len(c.data) < size:
		c.Fail()
		return 0
	}
	copy(word[:], c.data[:size])
	c.data = c.data[size:]
	return binary.LittleEndian.Uint64(word[:])
}

// Elements codes how many elements a list has, and returns those that are to be coded next. What is left to read must
// have room for so many, of which each takes at least so many bytes: damage does not cost memory.
func Elements[E any](c *Codec, list *[]E, least int) []E {
	n := uint64(len(*list))
	if Uint(c, &n); c.reading {
		if n > uint64(len(c.data)/least) {
			c.Fail()
			n = 0
		}
		*list = make([]E, n)
	}
	return *list
}

// Uint codes numbers that are not negative.
func Uint[T ~uint64 | ~int64](c *Codec, values ...*T) {
	for _, v := range values {
		if !c.reading {
			c.data = binary.AppendUvarint(c.data, uint64(*v))
			continue
		}
		u, n := binary.Uvarint(c.data)
		*v = T(c.skip(n)) * T(u)
	}
}

// Int codes numbers with a sign.
func Int[T ~int64](c *Codec, values ...*T) {
	for _, v := range values {
		if !c.reading {
			c.data = binary.AppendVarint(c.data, int64(*v))
			continue
		}
		i, n := binary.Varint(c.data)
		*v = T(c.skip(n)) * T(i)
	}
}

// skip leaves out n bytes and returns 1, or 0 if the number there was damaged.
func (c *Codec) skip(n int) int {
	if n <= 0 {
		c.Fail()
		return 0
	}
	c.data = c.data[n:]
	return 1
}

// Text codes a text.
func (c *Codec) Text(v *string) {
	if c.reading {
		*v = string(c.next())
		return
	}
	c.data = append(binary.AppendUvarint(c.data, uint64(len(*v))), *v...)
}

// Bytes codes bytes that may be empty, not nil.
func (c *Codec) Bytes(v *[]byte) {
	if c.reading {
		*v = append([]byte{}, c.next()...)
		return
	}
	c.data = append(binary.AppendUvarint(c.data, uint64(len(*v))), *v...)
}

// next returns the bytes of a text.
func (c *Codec) next() []byte {
	var n uint64
	if Uint(c, &n); n > uint64(len(c.data)) {
		c.Fail()
		return nil
	}
	text := c.data[:n]
	c.data = c.data[n:]
	return text
}

// Package codec encodes and decodes the persistent state of an agent. The same traversal of the fields serves both
// directions, so that encoding and decoding cannot diverge. Numbers are varints unless a size is given; strings are
// prefixed with their length.
package codec

import (
	"encoding/binary"
	"math"
)

// A Codec encodes the given fields or decodes into them. After a decoding error, all further values are zero.
type Codec struct {
	data    []byte // encoded data, or the remaining data to decode
	reading bool
	failed  bool
}

// Writer returns a codec that appends to the given slice.
func Writer(to []byte) Codec { return Codec{data: to} }

// Reader returns a codec that decodes data. Decoded strings and byte slices are copies.
func Reader(data []byte) Codec { return Codec{data: data, reading: true} }

// Reading reports whether the codec decodes.
func (c *Codec) Reading() bool { return c.reading }

// Data returns the data encoded so far, or the remaining data to decode.
func (c *Codec) Data() []byte { return c.data }

// Fail marks the decoded data as damaged. It is a no-op when encoding, because the reader detects the damage.
func (c *Codec) Fail() {
	if c.reading {
		c.data, c.failed = c.data[:0], true
	}
}

// Failed reports whether the data decoded so far is damaged.
func (c *Codec) Failed() bool { return c.failed }

// Whole reports whether all data was decoded without an error.
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

// Version codes the version byte. Decoding fails if the byte differs from want.
func (c *Codec) Version(want byte) {
	have := want
	if c.Byte(&have); have != want {
		c.Fail()
	}
}

// Flags codes up to eight booleans in one byte.
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

// Fixed codes a number in size bytes, in little-endian order.
func Fixed[T ~uint16 | ~uint32 | ~int64](c *Codec, size int, v *T) { *v = T(c.fixed(size, uint64(*v))) }

// Float32 codes a number as its IEEE 754 bits.
func (c *Codec) Float32(v *float32) {
	*v = math.Float32frombits(uint32(c.fixed(4, uint64(math.Float32bits(*v)))))
}

// Float64 codes a number as its IEEE 754 bits.
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

// Elements codes the length of a list and returns the elements to code next. When decoding, it fails if the
// remaining data is shorter than the length times the minimum size of an element, so that damaged data cannot cause
// large allocations.
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

// Uint codes unsigned numbers.
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

// Int codes signed numbers.
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

// skip skips n bytes and returns 1, or returns 0 if the number was damaged.
func (c *Codec) skip(n int) int {
	if n <= 0 {
		c.Fail()
		return 0
	}
	c.data = c.data[n:]
	return 1
}

// Text codes a string.
func (c *Codec) Text(v *string) {
	if c.reading {
		*v = string(c.next())
		return
	}
	c.data = append(binary.AppendUvarint(c.data, uint64(len(*v))), *v...)
}

// Bytes codes a byte slice that may be empty but not nil.
func (c *Codec) Bytes(v *[]byte) {
	if c.reading {
		*v = append([]byte{}, c.next()...)
		return
	}
	c.data = append(binary.AppendUvarint(c.data, uint64(len(*v))), *v...)
}

// next returns the bytes of a length-prefixed string.
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

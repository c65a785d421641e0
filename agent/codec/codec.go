// Package codec writes what an agent keeps and reads it back. One walk over the fields serves both directions, so that
// what is written and what is read cannot differ. Numbers are varints; texts carry their length.
package codec

import "encoding/binary"

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

// Fail marks what is read as damaged.
func (c *Codec) Fail() { c.data, c.failed = c.data[:0], true }

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

// Uint codes a number that is not negative.
func Uint[T ~uint64 | ~int64](c *Codec, v *T) {
	if !c.reading {
		c.data = binary.AppendUvarint(c.data, uint64(*v))
		return
	}
	u, n := binary.Uvarint(c.data)
	*v = T(c.skip(n)) * T(u)
}

// Int codes a number with a sign.
func Int[T ~int64](c *Codec, v *T) {
	if !c.reading {
		c.data = binary.AppendVarint(c.data, int64(*v))
		return
	}
	i, n := binary.Varint(c.data)
	*v = T(c.skip(n)) * T(i)
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

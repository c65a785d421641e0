package sqlstore

import (
	"encoding/binary"
	"math"
)

// A codec writes numbers one after the other, or reads them: one piece of code says of what a form is made, and its
// writing and reading cannot differ. Where there are no more numbers to read they are 0, and it has not ended well.
type codec struct {
	b           []byte // what was written, or what is still to be read
	writes, bad bool
}

func (c *codec) unsigned(v *uint64) {
	if c.writes {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	var n int
	if *v, n = binary.Uvarint(c.b); n <= 0 {
		*v, n, c.bad, c.b = 0, 0, true, nil
	}
	c.b = c.b[n:]
}

func (c *codec) number(v *int64) {
	u := uint64(*v<<1 ^ *v>>63) //nolint:mnd // the sign
	c.unsigned(&u)
	*v = int64(u>>1) ^ -int64(u&1)
}

// beside is a number that is near another one.
func (c *codec) beside(v *int64, near int64) {
	by := *v - near
	c.number(&by)
	*v = near + by
}

// step is a number that is near the one before, which it becomes.
func (c *codec) step(before, v *int64) {
	c.beside(v, *before)
	*before = *v
}

func (c *codec) byte(v *byte) {
	switch {
	case c.writes:
		c.b = append(c.b, *v)
	case len(c.b) == 0:
		*v, c.bad = 0, true
	default:
		*v, c.b = c.b[0], c.b[1:]
	}
}

// version is a byte that must be as it is.
func (c *codec) version(want byte) {
	have := want
	c.byte(&have)
	c.bad = c.bad || have != want
}

// flags are a byte of at most eight of them.
func (c *codec) flags(all ...*bool) {
	b := byte(0)
	for i, flag := range all {
		if *flag {
			b |= 1 << i
		}
	}
	c.byte(&b)
	for i, flag := range all {
		*flag = b>>i&1 != 0
	}
	c.bad = c.bad || b>>len(all) != 0
}

func (c *codec) floats(all ...*float64) {
	const size = 8
	for _, v := range all {
		switch {
		case c.writes:
			c.b = binary.LittleEndian.AppendUint64(c.b, math.Float64bits(*v))
		case len(c.b) < size:
			*v, c.bad, c.b = 0, true, nil
		default:
			*v, c.b = math.Float64frombits(binary.LittleEndian.Uint64(c.b)), c.b[size:]
		}
	}
}

// counted is a list: its length is written, or a list is made of as many things as follow, each of at least so many
// bytes.
func counted[T any](c *codec, list []T, least int) []T {
	n := uint64(len(list))
	c.unsigned(&n)
	if c.writes {
		return list
	}
	if n > uint64(len(c.b)/least) {
		n, c.bad, c.b = 0, true, nil
	}
	return make([]T, n)
}

func (c *codec) ended() bool { return !c.bad && len(c.b) == 0 }

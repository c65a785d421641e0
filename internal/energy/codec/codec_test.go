package codec_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

type fields struct {
	One        byte
	Here, Gone bool
	Count      uint64
	Sum        int64
	Small      uint16
	Half       float32
	Whole      float64
	Name       string
	State      []byte
	List       []int64
}

func (f *fields) code(c *codec.Codec) {
	c.Byte(&f.One)
	c.Flags(&f.Here, &f.Gone)
	codec.Uint(c, &f.Count)
	codec.Int(c, &f.Sum)
	codec.Fixed(c, 2, &f.Small)
	c.Float32(&f.Half)
	c.Float64(&f.Whole)
	c.Text(&f.Name)
	c.Bytes(&f.State)
	for i := range codec.Elements(c, &f.List, 1) {
		codec.Int(c, &f.List[i])
	}
}

// Decoding returns the encoded values, and truncated data is detected.
func TestCodec(t *testing.T) {
	for _, want := range []fields{
		{State: []byte{}, List: []int64{}},
		{
			One: 255, Gone: true, Count: math.MaxUint64, Sum: math.MinInt64, Small: 258, Half: 0.5, Whole: -1e300,
			Name: "pod/a", State: []byte("state"), List: []int64{1, -1},
		},
	} {
		w := codec.Writer([]byte("before"))
		want.code(&w)
		data := w.Data()[len("before"):]
		for i := range data {
			r := codec.Reader(data[:i])
			if new(fields).code(&r); !r.Failed() || r.Whole() {
				t.Errorf("decoding %d of %d bytes succeeded, want an error", i, len(data))
			}
		}
		var got fields
		r := codec.Reader(data)
		if got.code(&r); !r.Whole() {
			t.Error("not read whole")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		r = codec.Reader(append(data, 0))
		if got.code(&r); r.Whole() || r.Failed() {
			t.Error("decoding with an extra byte: want neither Whole() nor Failed()")
		}
	}
}

// A length that exceeds the remaining data, and a number of too many bytes, are damage.
func TestDamage(t *testing.T) {
	var text string
	r := codec.Reader([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	if r.Text(&text); !r.Failed() {
		t.Error("decoding a number of too many bytes succeeded")
	}
	r = codec.Reader([]byte{5, 'a'})
	if r.Text(&text); !r.Failed() || text != "" {
		t.Errorf("read %q", text)
	}
}

// A list that exceeds the remaining data, and an unknown flag, are damage.
func TestForeign(t *testing.T) {
	var list []uint64
	r := codec.Reader([]byte{4, 1, 2, 3})
	if codec.Elements(&r, &list, 1); !r.Failed() || len(list) != 0 {
		t.Errorf("Elements() returned %d elements for 3 bytes, want an error", len(list))
	}
	var flag bool
	r = codec.Reader([]byte{2})
	if r.Flags(&flag); !r.Failed() {
		t.Error("decoding an unknown flag succeeded")
	}
}

// An error while encoding does not discard data that was encoded before.
func TestWriterDoesNotFail(t *testing.T) {
	w := codec.Writer([]byte("before"))
	if w.Fail(); w.Failed() || string(w.Data()) != "before" {
		t.Errorf("Failed() = %v, Data() = %q", w.Failed(), w.Data())
	}
}

package codec_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/agent/codec"
)

type fields struct {
	One   byte
	Count uint64
	Sum   int64
	Name  string
	State []byte
}

func (f *fields) code(c *codec.Codec) {
	c.Byte(&f.One)
	codec.Uint(c, &f.Count)
	codec.Int(c, &f.Sum)
	c.Text(&f.Name)
	c.Bytes(&f.State)
}

// What was written is read; what is cut off anywhere is not taken for whole.
func TestCodec(t *testing.T) {
	for _, want := range []fields{
		{State: []byte{}},
		{One: 255, Count: math.MaxUint64, Sum: math.MinInt64, Name: "pod/a", State: []byte("state")},
	} {
		w := codec.Writer([]byte("before"))
		want.code(&w)
		data := w.Data()[len("before"):]
		for i := range data {
			r := codec.Reader(data[:i])
			if new(fields).code(&r); !r.Failed() || r.Whole() {
				t.Errorf("%d bytes of %d were enough", i, len(data))
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
			t.Error("a byte too many was not seen")
		}
	}
}

// A length beyond what there is, and a number longer than any, are damage.
func TestDamage(t *testing.T) {
	var text string
	r := codec.Reader([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	if r.Text(&text); !r.Failed() {
		t.Error("a number longer than any was read")
	}
	r = codec.Reader([]byte{5, 'a'})
	if r.Text(&text); !r.Failed() || text != "" {
		t.Errorf("read %q", text)
	}
}

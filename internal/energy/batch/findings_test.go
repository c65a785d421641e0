package batch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestFindings(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, tt := range []struct{ all, want []string }{
		{nil, nil}, {[]string{"a", "b\nc"}, []string{"a", "b\nc"}}, {[]string{"a", long, long}, []string{"a", long}},
	} {
		value := batch.EncodeFindings(tt.all)
		if strings.ContainsAny(value, "\n\x00") {
			t.Errorf("EncodeFindings() = %q, want a single line", value)
		}
		if got, err := batch.DecodeFindings(value); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("decoding %q returned %q, error %v", value, got, err)
		}
	}
	for _, bad := range []string{"a", `{"a":1}`, "[1]", `["` + strings.Repeat("x", 4<<10) + `"]`} {
		if got, err := batch.DecodeFindings(bad); err == nil {
			t.Errorf("%.20q is %q", bad, got)
		}
	}
}

func FuzzDecodeFindings(f *testing.F) {
	f.Add(`["a"]`)
	f.Fuzz(func(t *testing.T, value string) {
		defer memtest.Limit(t, 100*len(value))()
		_, _ = batch.DecodeFindings(value)
	})
}

package batch

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const usual = `{"version":1,"stream":{"node":"n","boot":"b","epoch":"e"},"first":1,"last":2,"parent":{"host":"h","vm":"v"},` +
	`"start":"2026-01-01T00:00:00.5Z","end":"2026-01-01T01:00:01.5+01:00","startSinceBoot":0,"endSinceBoot":1000000000,"unmeasured":1,` +
	`"source":"psys (rapl)","quality":"measured","idlePolicy":"apart","measured":6,"idle":1,"platform":1,"unknown":1,` +
	`"shares":[{"id":"pod/u/c","dynamic":1,"idle":1,"cpu":5,"ended":true},{"id":"system","dynamic":1,"cpu":0,"ended":false}]}`

func same(t *testing.T, data []byte) {
	t.Helper()
	fast, ok := scan(data)
	if !ok {
		return
	}
	slow, err := decode(data)
	if err != nil {
		t.Fatalf("%s: scanned, but %v", data, err)
	}
	if diff := cmp.Diff(slow, fast); diff != "" {
		t.Fatalf("%s: %s", data, diff)
	}
}

// What is scanned is what the complete decoder reads.
func TestScan(t *testing.T) {
	if _, ok := scan([]byte(usual)); !ok {
		t.Fatal("the usual form is not scanned")
	}
	same(t, []byte(usual))
	for _, change := range [][2]string{
		{`"shares":[`, `"shares":[],"x":[`},
		{`"version":1`, `"version":01`},
		{`"version":1`, `"version":1.0`},
		{`"version":1`, `"version":1e0`},
		{`"version":1`, `"version":null`},
		{`"version":1`, `"version":-0`},
		{`"version":1`, "\"version\" :\t1\r\n"},
		{`"first":1`, `"first":18446744073709551615`},
		{`"first":1`, `"first":18446744073709551616`},
		{`"measured":6`, `"measured":9223372036854775807`},
		{`"measured":6`, `"measured":9223372036854775808`},
		{`"parent":{"host":"h","vm":"v"}`, `"parent":{}`},
		{`"ended":true`, `"ended":truefalse`},
		{`"ended":true`, `"ended":nul`},
		{`"psys (rapl)"`, "\"a\x7fb\""},
		{`"psys (rapl)"`, `"ä"`},
		{`"psys (rapl)"`, "\"\xff\""},
		{`"psys (rapl)"`, `"\u0041"`},
		{`"id":"system",`, ``},
		{`}]}`, `},]}`},
		{`}]}`, `}],}`},
		{`{"id":"system","dynamic":1,"cpu":0,"ended":false}`, `{}`},
		{`"idle":1,"cpu"`, `"idle":1,"measured":1,"cpu"`},
		{`"host":"h"`, `"node":"h"`},
		{`"2026-01-01T00:00:00.5Z"`, `"2026-01-01T00:00:00,5Z"`},
		{`"2026-01-01T00:00:00.5Z"`, `"2026-01-01 00:00:00Z"`},
		{`"2026-01-01T00:00:00.5Z"`, `"2026-01-01T00:00:00+24:00"`},
		{`"quality":"measured"`, `"quality":"Measured"`},
		{`"quality":"measured"`, `"quality":0`},
		{`"first":1,`, `"first":1,"first":1,`},
	} {
		if !strings.Contains(usual, change[0]) {
			t.Fatalf("%s is not in the usual form", change[0])
		}
		same(t, []byte(strings.Replace(usual, change[0], change[1], 1)))
	}
	for i := range usual { // cut off, and every byte changed
		same(t, []byte(usual[:i]))
		for _, c := range []byte(`"{}[],:0-1e\ `) {
			changed := bytes.Clone([]byte(usual))
			changed[i] = c
			same(t, changed)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(usual))
	f.Add([]byte(`{"version":1,"shares":[{}]}`))
	f.Add([]byte(`{"shares":[],"stream":{},"parent":{},"quality":"derived","start":"2026-01-01T00:00:00Z"} `))
	f.Fuzz(func(t *testing.T, data []byte) { same(t, data) })
}

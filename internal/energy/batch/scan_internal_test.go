package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const usual = `{"version":1,"stream":{"node":"n","boot":"b","epoch":"e"},"first":1,"last":2,"parent":{"host":"h","vm":"v"},` +
	`"start":"2026-01-01T00:00:00.5Z","end":"2026-01-01T01:00:01.5+01:00","startSinceBoot":0,"endSinceBoot":1000000000,"unmeasured":1,` +
	`"source":"psys (rapl)","quality":"measured","idlePolicy":"apart","measured":6,"idle":1,"platform":1,"unknown":1,` +
	`"shares":[{"id":"pod/u/c","dynamic":1,"idle":1,"cpu":5,"ended":true},{"id":"system","dynamic":1,"cpu":0,"ended":false}]}`

// same compares the result of scan with that of encoding/json, if the latter is unambiguous.
func same(t *testing.T, data []byte) {
	t.Helper()
	fast, err := scan(data)
	if err == nil {
		err = fast.Validate()
	}
	slow, wrong := decode(data)
	if wrong == nil {
		wrong = slow.Validate()
	}
	switch {
	case (err == nil) != (wrong == nil):
		t.Fatalf("%s: scan() returned error %v, decode() returned error %v", data, err, wrong)
	case err == nil:
		if diff := cmp.Diff(slow, fast); diff != "" {
			t.Fatalf("%s: %s", data, diff)
		}
	}
}

// scan and the complete decoder return the same result.
func TestScan(t *testing.T) {
	if _, err := scan([]byte(usual)); err != nil {
		t.Fatal(err)
	}
	same(t, []byte(usual))
	for _, change := range [][2]string{
		{`"shares":[`, `"shares":[],"x":[`},
		{`"version":1`, `"version":01`},
		{`"version":1`, `"version":1.0`},
		{`"version":1`, `"version":1e0`},
		{`"version":1`, `"version":null`},
		{`"version":1`, `"version":-0`},
		{`"idle":1,"platform":1,"unknown":1`, `"idle":3,"platform":-0,"unknown":0`},
		{`"idle":1,"platform":1,"unknown":1`, `"idle":3,"platform":null,"unknown":0`},
		{`"idle":1,"platform":1,"unknown":1`, `"idle":4,"platform":-1,"unknown":0`},
		{`"first":1`, `"first":-0`},
		{`"parent":{"host":"h","vm":"v"}`, `"parent":null`},
		{`"ended":true`, `"ended":null`},
		{`"ended":true`, `"ended":nulll`},
		{`"quality":"measured"`, `"quality":null`},
		{`"stream":{"node":"n"`, `"stream":{"node":"\u006e\"\\"`},
		{`"psys (rapl)"`, `"\ud800"`},
		{`"psys (rapl)"`, `"\x"`},
		{`"psys (rapl)"`, `"a\"`},
		{`"idle":1,"cpu"`, `"idl\u0065":1,"cpu"`},
		{`"idle":1,"cpu"`, `"Idle":1,"cpu"`},
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
			t.Fatalf("%s is not in the usual batch", change[0])
		}
		same(t, []byte(strings.Replace(usual, change[0], change[1], 1)))
	}
	for i := range usual { // truncated at every byte, and with every byte changed
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
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		same(t, data)
	})
}

// decode decodes and validates a batch in any form that JSON allows.
func decode(data []byte) (*Batch, error) {
	type plain Batch
	b := new(Batch)
	// Shares are decoded one by one, because a few bytes of JSON could otherwise consume a hundred times as much
	// memory.
	wire := struct {
		*plain
		Shares json.RawMessage `json:"shares"`
	}{plain: (*plain)(b)}
	if err := decodeAll(data, &wire); err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	shares, err := decodeShares(wire.Shares)
	if err != nil {
		return nil, fmt.Errorf("decoding shares: %w", err)
	}
	if err := checkKeys(data); err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	b.Shares = shares
	return b, nil
}

// checkKeys rejects duplicate keys in an object, and keys with different capitalization or escapes: encoding/json
// accepts them, but other parsers interpret them differently. Apart from that, data must be a valid batch.
func checkKeys(data []byte) error {
	var seen [8]uint32 // by depth; a batch has a depth of 3
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth == len(seen) {
				return errors.New("nested too deeply")
			}
			seen[depth] = 0
		case '}', ']':
			depth--
		case '"':
			text := data[i+1 : i+1+textLength(data[i+1:])]
			i += len(text) + 1
			if rest := bytes.TrimLeft(data[i+1:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
				continue
			}
			number := slices.Index(keys, string(text))
			if number < 0 || seen[depth]&(1<<number) != 0 {
				return fmt.Errorf("unknown or duplicate key %.40q", text)
			}
			seen[depth] |= 1 << number
		}
	}
	return nil
}

// keys contains the keys of all objects in a batch.
var keys = slices.Concat(keysOf(ofBatch), keysOf(ofStream), keysOf(ofParent), keysOf(ofShare))

func keysOf[T any](fields []jsonscan.Field[T]) (keys []string) {
	for _, f := range fields {
		keys = append(keys, f.Key)
	}
	return keys
}

// textLength returns the length of a JSON string, including its closing quote.
func textLength(data []byte) int {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(data)
}

func decodeAll(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the value")
	}
	return nil
}

func decodeShares(data json.RawMessage) ([]energy.Share, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New("not a list")
	}
	shares := []energy.Share{}
	for dec.More() {
		if len(shares) == MaxShares {
			return nil, fmt.Errorf("more than %d", MaxShares)
		}
		var s energy.Share
		if err := dec.Decode(&s); err != nil {
			return nil, err
		}
		shares = append(shares, s)
	}
	return shares, nil
}

package access

import (
	"strconv"
	"testing"
	"time"
)

func TestBucketsAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := newBuckets(Allowance{PerSecond: 1, AtOnce: 1})
	for i := range mostBuckets + 5000 {
		b.take(strconv.Itoa(i), now)
	}
	if n := len(b.each.Keys()); n > mostBuckets {
		t.Errorf("%d buckets", n)
	}
	if _, ok := b.take(strconv.Itoa(mostBuckets), now); ok {
		t.Error("a caller who came lately is not counted any more")
	}
}

func TestPeers(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:2": "192.0.2.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "pipe": "", "x:1": "",
	} {
		if got := peerOf(remote); got != want {
			t.Errorf("%s: %q, want %q", remote, got, want)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add("e30.eyJhdWQiOlsiYSJdLCJleHAiOjF9.c2ln")
	f.Add("e30.eyJhdWQiOiJhIiwiZXhwIjoxZTMwMH0.c2ln")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		c := readClaims(token)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if c.before(at).After(at) {
			t.Error("a token prolongs what is known of it")
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add([]byte("hosts:\n- node: rack1\n  tokenSHA256: " +
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n  maxPowerWatts: 800\n"))
	f.Add([]byte(`{"hosts":[{"node":"a","tokenSHA256":"zz"}]}`))
	f.Add([]byte("hosts: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, tokens, err := parseHosts(data)
		if err != nil {
			return
		}
		if len(hosts) != len(tokens) {
			t.Errorf("%d hosts have %d tokens", len(hosts), len(tokens))
		}
		for name, h := range hosts {
			if name != h.Node || !plausibleName(name, mostNodeName) || !(h.MaxPower >= 0) {
				t.Errorf("%+v", h)
			}
		}
	})
}

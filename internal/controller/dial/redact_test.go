package dial

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestConceal verifies that passwords and tokens are also concealed without their user name or scheme.
func TestConceal(t *testing.T) {
	s := new(Secrets)
	s.Hide("ali:babababa", "Bearer abcdefghij", "x", "p+w d/1")
	for text, want := range map[string]string{
		"ali:babababa and babababa": "… and …", "token abcdefghij": "token …", "cut off: ABCDEFG": "cut off: …",
		"ex":    "ex",
		"abcde": "abcde", "p%2bw+d%2F1": "…", "": "",
	} {
		if got := s.Conceal(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for i := range 1000 {
		s.Hide("token-" + strconv.Itoa(i))
	}
	if len(s.hidden) > maxHidden || s.Conceal("token-999") != "…" {
		t.Errorf("got %d hidden keys, want at most the maximum", len(s.hidden))
	}
}

// FuzzConceal verifies that a key is concealed in all forms that servers return, surrounded by other text.
func FuzzConceal(f *testing.F) {
	f.Add("Bearer abcdefghij", "the token %s is invalid: ")
	f.Add("ali:p+w d/1", "…\xff")
	f.Fuzz(func(t *testing.T, key, text string) {
		defer memtest.Limit(t, 100*(len(key)+len(text)))()
		s := new(Secrets)
		s.Hide(key)
		for _, form := range []string{key, url.QueryEscape(key), strings.ToUpper(url.PathEscape(key))} {
			if len(key) < tellingPart || strings.Contains(text+"…"+text, form) {
				continue // the key is not concealed
			}
			if said := s.Conceal(text + form + text); strings.Contains(said, form) {
				t.Fatalf("%q was not concealed in %q", form, said)
			}
		}
	})
}

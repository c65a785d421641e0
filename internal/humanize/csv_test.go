package humanize

import "testing"

func TestCSVCell(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "web": "web", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@a": "'@a", " =1": "' =1", "\t=1": "' =1",
		"a\nb": "a b", "＝1": "'＝1", "a=b": "a=b",
	} {
		if got := CSVCell(text); got != want {
			t.Errorf("CSVCell(%q) = %q, want %q", text, got, want)
		}
	}
}

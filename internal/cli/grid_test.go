package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGridConvert(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "smard.csv"), filepath.Join(dir, "out.csv")
	text := "Datum von;Datum bis;DE/LU [€/MWh] Originalauflösungen;Österreich [€/MWh] Originalauflösungen\n" +
		"01.10.2024 00:00;01.10.2024 01:00;80,5;1\n01.10.2024 01:00;01.10.2024 02:00;-;2\n" +
		"01.10.2024 02:00;01.10.2024 03:00;-10,5;3\n01.10.2024 03:00;01.10.2024 04:00;20;4\n"
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	column := "DE/LU [€/MWh] Originalauflösungen"
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":     {nil, 2, "want one or more files"},
		"no zone":     {[]string{in, "--price", "--column", column, "--fill", "1h"}, 2, "smard.csv:2: time: "},
		"wrong zone":  {[]string{in, "--time-zone", "Mars"}, 2, "not an IANA time zone"},
		"no column":   {[]string{in, "--price", "--time-zone", "Europe/Berlin"}, 2, "--column: "},
		"a gap":       {[]string{in, "--price", "--column", column, "--time-zone", "Europe/Berlin"}, 2, "set --fill 3h"},
		"in the file": {[]string{in, "--price", "--column", column, "--time-zone", "Europe/Berlin", "--fill", "1h", "-o", out}, 0, "filled in 1"},
	} {
		code, stdout, stderr := execute(t, append([]string{"grid", "convert"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%s: exit code %d, output %q, error %q", name, code, stdout, stderr)
		}
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := "datetime_utc,price_per_kwh,estimated\n2024-09-30T22:00:00Z,0.0805,1\n2024-09-30T23:00:00Z,0.035,1\n" +
		"2024-10-01T00:00:00Z,-0.0105,1\n2024-10-01T01:00:00Z,0.02,1\n"
	if string(got) != want {
		t.Errorf("converted file:\n%s\nwant:\n%s", got, want)
	}
	code, stdout, stderr := execute(t, "grid", "convert", out, "--price")
	if code != 0 || stderr != "" || stdout != want {
		t.Errorf("converting the result again: exit code %d, %s\n%s", code, stderr, stdout)
	}
}

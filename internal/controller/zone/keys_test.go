package zone

import (
	"os"
	"testing"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
)

func TestKeys(t *testing.T) {
	folder := t.TempDir()
	environment := map[string]string{}
	k := Keys{Folder: signal.KeyFolder(folder), Getenv: func(name string) string { return environment[name] }}
	want := func(name, key string) {
		t.Helper()
		if got, err := k.Key(name); got != key || (err == nil) != (key != "") {
			t.Errorf("key %s is %q, error %v; want %q", name, got, err, key)
		}
	}
	want("electricitymaps", "")
	environment["ELECTRICITY_MAPS_API_KEY"] = "s"
	want("electricitymaps", "s")
	environment["ELECTRICITY_MAP_API_KEY"] = "no-s"
	want("electricitymaps", "no-s")
	want("watttime", "")
	if err := os.WriteFile(folder+"/electricitymaps", []byte("file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("electricitymaps", "file")
}

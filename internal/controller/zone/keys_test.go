package zone

import (
	"os"
	"testing"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/policy"
)

func TestKeys(t *testing.T) {
	folder := t.TempDir()
	for _, name := range policy.GardenerKeys {
		t.Setenv(name, "")
	}
	k := Keys{signal.KeyFolder(folder)}
	want := func(name, key string) {
		t.Helper()
		if got, err := k.Key(name); got != key || (err == nil) != (key != "") {
			t.Errorf("key %s is %q, error %v; want %q", name, got, err, key)
		}
	}
	want("electricitymaps", "")
	t.Setenv("ELECTRICITY_MAPS_API_KEY", "s")
	want("electricitymaps", "s")
	t.Setenv("ELECTRICITY_MAP_API_KEY", "no-s")
	want("electricitymaps", "no-s")
	want("watttime", "")
	if err := os.WriteFile(folder+"/electricitymaps", []byte("file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("electricitymaps", "file")
}

package zone

import (
	"os"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Keys reads keys from a directory of files. For compatibility with Compute Gardener it falls back to the
// environment: if there is no file for the key electricitymaps, ELECTRICITY_MAP_API_KEY is used. Environment
// variables do not create a GridZone.
type Keys struct{ signal.KeyFolder }

// Key implements [dial.KeyReader].
func (k Keys) Key(name string) (string, error) {
	key, err := k.KeyFolder.Key(name)
	if err == nil || name != policy.GardenerKey {
		return key, err
	}
	for _, variable := range policy.GardenerKeys {
		if key := os.Getenv(variable); key != "" {
			return key, nil
		}
	}
	return "", err
}

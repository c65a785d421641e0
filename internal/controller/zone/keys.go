package zone

import (
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Keys are a folder of key files and, for those who come from Compute Gardener, the environment: a GridZone that
// names the key electricitymaps gets ELECTRICITY_MAP_API_KEY where there is no file of that name. Variables create no
// GridZone.
type Keys struct {
	Folder signal.KeyFolder
	Getenv func(string) string
}

// Key implements dial.KeyReader.
func (k Keys) Key(name string) (string, error) {
	key, err := k.Folder.Key(name)
	if err == nil || name != policy.GardenerKey {
		return key, err
	}
	for _, variable := range policy.GardenerKeys {
		if key := k.Getenv(variable); key != "" {
			return key, nil
		}
	}
	return "", err
}

package zone

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kubenergy/kubenergy/controller/signal"
)

// electricityMapsKey is the name of the key that Compute Gardener's users have in their environment.
const electricityMapsKey = "electricitymaps"

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
	if err == nil || name != electricityMapsKey {
		return key, err
	}
	if key := cmp.Or(k.Getenv("ELECTRICITY_MAP_API_KEY"), k.Getenv("ELECTRICITY_MAPS_API_KEY")); key != "" {
		return key, nil
	}
	return "", err
}

// saidByGridZones are the variables of Compute Gardener about its one region and one provider, and what says it here.
var saidByGridZones = map[string]string{
	"ELECTRICITY_MAP_API_REGION": "spec.zone of a GridZone",
	"ELECTRICITY_MAP_API_URL":    "electricityMaps.url of a GridZone's source",
	"CACHE_TTL":                  "every of a GridZone's source",
	"MAX_CACHE_AGE":              "carbon.maxAge of a GridZone",
	"API_RATE_LIMIT":             "maxCallsPerHour of a GridZone's source",
	"API_TIMEOUT":                "nothing: five seconds",
	"API_MAX_RETRIES":            "nothing: two",
	"API_RETRY_DELAY":            "nothing: a second and more, or what the provider asks for",
}

// Unheeded returns a sentence for each variable that is set and has no effect.
func Unheeded(environ []string) (sentences []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if says, ok := saidByGridZones[name]; ok && value != "" {
			sentences = append(sentences, fmt.Sprintf("environment variable %s has no effect: it is said by %s", name,
				says))
		}
	}
	return sentences
}

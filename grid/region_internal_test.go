package grid

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestCloudRegionsAreSortedAndWellFormed(t *testing.T) {
	zone := regexp.MustCompile(`^[A-Z]{2}(-[A-Z0-9]+)*$`)
	region := regexp.MustCompile(`^[a-z0-9-]+$`)
	for i, r := range cloudRegions {
		if !zone.MatchString(string(r.zone)) || !region.MatchString(r.name) {
			t.Errorf("%+v is not well formed", r)
		}
		if i > 0 && compareRegions(cloudRegions[i-1], r) >= 0 {
			t.Errorf("%+v does not come after %+v", r, cloudRegions[i-1])
		}
	}
	providers := slices.Compact(slices.Collect(func(yield func(string) bool) {
		for _, r := range cloudRegions {
			if !yield(r.provider) {
				return
			}
		}
	}))
	if !slices.Equal(providers, []string{"aws", "azure", "gcp"}) {
		t.Errorf("providers are %v", providers)
	}
}

func TestCloudRegionsAreInZonesThatExist(t *testing.T) {
	path := filepath.FromSlash("../../shared/data/api/electricitymaps/zones.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the shared data folder is not here: %v", err)
	}
	var zones map[Zone]json.RawMessage
	if err := json.Unmarshal(text, &zones); err != nil {
		t.Fatal(err)
	}
	for _, r := range cloudRegions {
		if _, ok := zones[r.zone]; !ok {
			t.Errorf("%s %s: there is no zone %s", r.provider, r.name, r.zone)
		}
	}
}

func TestZoneOfRegion(t *testing.T) {
	for _, c := range []struct {
		provider, region string
		want             Zone
	}{
		{"aws", "eu-central-1", "DE"},
		{"gcp", "europe-west9", "FR"},
		{"gce", "europe-west9", "FR"},
		{"azure", "westus2", "US-NW-GCPD"},
		{"azure", "WestUS2", "US-NW-GCPD"},
		{"", "ca-central-1", "CA-QC"},
		{"", "us-west4", "US-NW-NEVP"},
		{"gcp", "eu-central-1", ""},
		{"aws", "", ""},
		{"", "", ""},
		{"", "moon-north-1", ""},
		{"hetzner", "fsn1", ""},
	} {
		got, ok := ZoneOfRegion(c.provider, c.region)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s %s is in %q, %v; want %q", c.provider, c.region, got, ok, c.want)
		}
	}
}

// Where two providers use one name for regions on different grids, only the provider can tell.
func TestZoneOfRegionThatTwoProvidersHave(t *testing.T) {
	old := cloudRegions
	defer func() { cloudRegions = old }()
	cloudRegions = []cloudRegion{
		{"aws", "north", "SE"}, {"aws", "south", "ES"}, {"azure", "north", "SE"}, {"azure", "south", "IT"},
	}
	if zone, ok := ZoneOfRegion("", "north"); zone != "SE" || !ok {
		t.Errorf("both say SE, got %q, %v", zone, ok)
	}
	if zone, ok := ZoneOfRegion("", "south"); ok {
		t.Errorf("they differ, got %q", zone)
	}
	if zone, _ := ZoneOfRegion("azure", "south"); zone != "IT" {
		t.Errorf("of azure it is %q", zone)
	}
}

// docs/signals.md gives this number.
func TestNumberOfRegions(t *testing.T) {
	if n := len(cloudRegions); n != 157 {
		t.Errorf("%d regions: say so in docs/signals.md", n)
	}
}

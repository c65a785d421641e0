package grid

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestCloudRegionsAreWellFormed(t *testing.T) {
	zone := regexp.MustCompile(`^[A-Z]{2}(-[A-Z0-9]+)*$`)
	region := regexp.MustCompile(`^(aws|azure|gcp)/[a-z0-9-]+$`)
	seen := map[string]bool{}
	for z, regions := range cloudRegions {
		for _, r := range regions {
			if !zone.MatchString(string(z)) || !region.MatchString(r) || seen[r] {
				t.Errorf("region %s in zone %s is malformed or duplicate", r, z)
			}
			seen[r] = true
		}
	}
	// docs/how-to/signals.md contains this number.
	if n := len(seen); n != 157 {
		t.Errorf("got %d regions: update the number in docs/how-to/signals.md", n)
	}
}

func TestCloudRegionsAreInZonesThatExist(t *testing.T) {
	path := filepath.FromSlash("../../../shared/data/api/electricitymaps/zones.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("skipping because the shared data directory is missing: %v", err)
	}
	var zones map[Zone]json.RawMessage
	if err := json.Unmarshal(text, &zones); err != nil {
		t.Fatal(err)
	}
	for zone := range cloudRegions {
		if _, ok := zones[zone]; !ok {
			t.Errorf("zone %s does not exist", zone)
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
			t.Errorf("ZoneOfRegion(%q, %q) = %q, %v, want %q", c.provider, c.region, got, ok, c.want)
		}
	}
}

// If two providers use the same name for regions on different grids, the zone depends on the provider.
func TestZoneOfRegionThatTwoProvidersHave(t *testing.T) {
	defer func(old map[string]Zone) { zonesByRegion = old }(zonesByRegion)
	zonesByRegion = map[string]Zone{"aws/north": "SE", "azure/north": "SE", "aws/south": "ES", "azure/south": "IT"}
	if zone, ok := ZoneOfRegion("", "north"); zone != "SE" || !ok {
		t.Errorf("zone of a region with the same zone in both providers = %q, %v, want SE", zone, ok)
	}
	if zone, ok := ZoneOfRegion("", "south"); ok {
		t.Errorf("zone of an ambiguous region = %q, want none", zone)
	}
	if zone, _ := ZoneOfRegion("azure", "south"); zone != "IT" {
		t.Errorf("zone of the region of azure = %q, want IT", zone)
	}
}

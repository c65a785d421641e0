package grid

import (
	"cmp"
	"slices"
	"strings"
)

// ZoneOfRegion returns the grid zone that feeds a region of a public cloud: of aws, azure or gcp, or, where the
// provider is "", of whichever has such a region, if they agree. Of a region with sites on several grids it is the
// one that feeds the first of them. The nodes of a cluster say which region they are in with the label
// topology.kubernetes.io/region.
func ZoneOfRegion(provider, region string) (Zone, bool) {
	provider, region = strings.ToLower(provider), strings.ToLower(region)
	if provider == "gce" { // as in the provider ID of a node
		provider = "gcp"
	}
	if provider != "" {
		return zoneOfRegion(provider, region)
	}
	var found Zone
	for _, p := range []string{"aws", "azure", "gcp"} {
		zone, ok := zoneOfRegion(p, region)
		if !ok {
			continue
		}
		if found != "" && found != zone {
			return "", false
		}
		found = zone
	}
	return found, found != ""
}

func zoneOfRegion(provider, region string) (Zone, bool) {
	want := cloudRegion{provider: provider, name: region}
	i, ok := slices.BinarySearchFunc(cloudRegions, want, compareRegions)
	if !ok {
		return "", false
	}
	return cloudRegions[i].zone, true
}

// cloudRegion is where a provider says that a region is, on the map of Electricity Maps.
type cloudRegion struct {
	provider, name string
	zone           Zone
}

func compareRegions(a, b cloudRegion) int {
	return cmp.Or(cmp.Compare(a.provider, b.provider), cmp.Compare(a.name, b.name))
}

// cloudRegions is sorted by provider and name.
var cloudRegions = []cloudRegion{
	{"aws", "af-south-1", "ZA"},
	{"aws", "ap-east-1", "HK"},
	{"aws", "ap-east-2", "TW"},
	{"aws", "ap-northeast-1", "JP-TK"},
	{"aws", "ap-northeast-2", "KR"},
	{"aws", "ap-northeast-3", "JP-KN"},
	{"aws", "ap-south-1", "IN-WE"},
	{"aws", "ap-south-2", "IN-SO"},
	{"aws", "ap-southeast-1", "SG"},
	{"aws", "ap-southeast-2", "AU-NSW"},
	{"aws", "ap-southeast-3", "ID"},
	{"aws", "ap-southeast-4", "AU-VIC"},
	{"aws", "ap-southeast-5", "MY-WM"},
	{"aws", "ap-southeast-6", "NZ"},
	{"aws", "ap-southeast-7", "TH"},
	{"aws", "ca-central-1", "CA-QC"},
	{"aws", "ca-west-1", "CA-AB"},
	{"aws", "cn-north-1", "CN"},
	{"aws", "cn-northwest-1", "CN"},
	{"aws", "eu-central-1", "DE"},
	{"aws", "eu-central-2", "CH"},
	{"aws", "eu-north-1", "SE-SE3"},
	{"aws", "eu-south-1", "IT-NO"},
	{"aws", "eu-south-2", "ES"},
	{"aws", "eu-west-1", "IE"},
	{"aws", "eu-west-2", "GB"},
	{"aws", "eu-west-3", "FR"},
	{"aws", "eusc-de-east-1", "DE"},
	{"aws", "il-central-1", "IL"},
	{"aws", "me-central-1", "AE"},
	{"aws", "me-south-1", "BH"},
	{"aws", "mx-central-1", "MX"},
	{"aws", "sa-east-1", "BR-CS"},
	{"aws", "us-east-1", "US-MIDA-PJM"},
	{"aws", "us-east-2", "US-MIDA-PJM"},
	{"aws", "us-gov-east-1", "US-MIDA-PJM"},
	{"aws", "us-gov-west-1", "US-NW-BPAT"},
	{"aws", "us-west-1", "US-CAL-CISO"},
	{"aws", "us-west-2", "US-NW-BPAT"},
	{"azure", "australiacentral", "AU-NSW"},
	{"azure", "australiacentral2", "AU-NSW"},
	{"azure", "australiaeast", "AU-NSW"},
	{"azure", "australiasoutheast", "AU-VIC"},
	{"azure", "austriaeast", "AT"},
	{"azure", "belgiumcentral", "BE"},
	{"azure", "brazilsouth", "BR-CS"},
	{"azure", "brazilsoutheast", "BR-CS"},
	{"azure", "canadacentral", "CA-ON"},
	{"azure", "canadaeast", "CA-QC"},
	{"azure", "centralindia", "IN-WE"},
	{"azure", "centralus", "US-MIDW-MISO"},
	{"azure", "chilecentral", "CL-SEN"},
	{"azure", "chinaeast", "CN"},
	{"azure", "chinaeast2", "CN"},
	{"azure", "chinaeast3", "CN"},
	{"azure", "chinanorth", "CN"},
	{"azure", "chinanorth2", "CN"},
	{"azure", "chinanorth3", "CN"},
	{"azure", "denmarkeast", "DK-DK2"},
	{"azure", "eastasia", "HK"},
	{"azure", "eastus", "US-MIDA-PJM"},
	{"azure", "eastus2", "US-MIDA-PJM"},
	{"azure", "eastus3", "US-SE-SOCO"},
	{"azure", "finlandcentral", "FI"},
	{"azure", "francecentral", "FR"},
	{"azure", "francesouth", "FR"},
	{"azure", "germanynorth", "DE"},
	{"azure", "germanywestcentral", "DE"},
	{"azure", "indonesiacentral", "ID"},
	{"azure", "israelcentral", "IL"},
	{"azure", "italynorth", "IT-NO"},
	{"azure", "japaneast", "JP-TK"},
	{"azure", "japanwest", "JP-KN"},
	{"azure", "jioindiacentral", "IN-WE"},
	{"azure", "jioindiawest", "IN-WE"},
	{"azure", "koreacentral", "KR"},
	{"azure", "koreasouth", "KR"},
	{"azure", "malaysiawest", "MY-WM"},
	{"azure", "mexicocentral", "MX"},
	{"azure", "newzealandnorth", "NZ"},
	{"azure", "northcentralus", "US-MIDA-PJM"},
	{"azure", "northeurope", "IE"},
	{"azure", "norwayeast", "NO-NO1"},
	{"azure", "norwaywest", "NO-NO2"},
	{"azure", "polandcentral", "PL"},
	{"azure", "qatarcentral", "QA"},
	{"azure", "southafricanorth", "ZA"},
	{"azure", "southafricawest", "ZA"},
	{"azure", "southcentralindia", "IN-SO"},
	{"azure", "southcentralus", "US-TEX-ERCO"},
	{"azure", "southeastasia", "SG"},
	{"azure", "southindia", "IN-SO"},
	{"azure", "spaincentral", "ES"},
	{"azure", "swedencentral", "SE-SE3"},
	{"azure", "swedensouth", "SE-SE4"},
	{"azure", "switzerlandnorth", "CH"},
	{"azure", "switzerlandwest", "CH"},
	{"azure", "taiwannorth", "TW"},
	{"azure", "uaecentral", "AE"},
	{"azure", "uaenorth", "AE"},
	{"azure", "uksouth", "GB"},
	{"azure", "ukwest", "GB"},
	{"azure", "usdodcentral", "US-MIDW-MISO"},
	{"azure", "usdodeast", "US-MIDA-PJM"},
	{"azure", "usgovarizona", "US-SW-SRP"},
	{"azure", "usgoviowa", "US-MIDW-MISO"},
	{"azure", "usgovtexas", "US-TEX-ERCO"},
	{"azure", "usgovvirginia", "US-MIDA-PJM"},
	{"azure", "westcentralus", "US-NW-WACM"},
	{"azure", "westeurope", "NL"},
	{"azure", "westindia", "IN-WE"},
	{"azure", "westus", "US-CAL-CISO"},
	{"azure", "westus2", "US-NW-GCPD"},
	{"azure", "westus3", "US-SW-SRP"},
	{"gcp", "africa-south1", "ZA"},
	{"gcp", "asia-east1", "TW"},
	{"gcp", "asia-east2", "HK"},
	{"gcp", "asia-northeast1", "JP-TK"},
	{"gcp", "asia-northeast2", "JP-KN"},
	{"gcp", "asia-northeast3", "KR"},
	{"gcp", "asia-south1", "IN-WE"},
	{"gcp", "asia-south2", "IN-NO"},
	{"gcp", "asia-southeast1", "SG"},
	{"gcp", "asia-southeast2", "ID"},
	{"gcp", "asia-southeast3", "TH"},
	{"gcp", "australia-southeast1", "AU-NSW"},
	{"gcp", "australia-southeast2", "AU-VIC"},
	{"gcp", "europe-central2", "PL"},
	{"gcp", "europe-north1", "FI"},
	{"gcp", "europe-north2", "SE-SE3"},
	{"gcp", "europe-southwest1", "ES"},
	{"gcp", "europe-west1", "BE"},
	{"gcp", "europe-west10", "DE"},
	{"gcp", "europe-west12", "IT-NO"},
	{"gcp", "europe-west2", "GB"},
	{"gcp", "europe-west3", "DE"},
	{"gcp", "europe-west4", "NL"},
	{"gcp", "europe-west6", "CH"},
	{"gcp", "europe-west8", "IT-NO"},
	{"gcp", "europe-west9", "FR"},
	{"gcp", "me-central1", "QA"},
	{"gcp", "me-central2", "SA"},
	{"gcp", "me-west1", "IL"},
	{"gcp", "northamerica-northeast1", "CA-QC"},
	{"gcp", "northamerica-northeast2", "CA-ON"},
	{"gcp", "northamerica-south1", "MX"},
	{"gcp", "southamerica-east1", "BR-CS"},
	{"gcp", "southamerica-west1", "CL-SEN"},
	{"gcp", "us-central1", "US-MIDW-MISO"},
	{"gcp", "us-east1", "US-CAR-SC"},
	{"gcp", "us-east4", "US-MIDA-PJM"},
	{"gcp", "us-east5", "US-MIDA-PJM"},
	{"gcp", "us-south1", "US-TEX-ERCO"},
	{"gcp", "us-west1", "US-NW-BPAT"},
	{"gcp", "us-west2", "US-CAL-CISO"},
	{"gcp", "us-west3", "US-NW-PACE"},
	{"gcp", "us-west4", "US-NW-NEVP"},
}

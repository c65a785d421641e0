package grid

import (
	"cmp"
	"strings"
)

// ZoneOfRegion returns the grid zone of a region of a public cloud. The provider is aws, azure or gcp. If it is
// empty, all providers with such a region are considered, and they must agree. For a region with sites on several
// grids, it returns the zone of the first site. The nodes of a cluster have their region in the label
// topology.kubernetes.io/region.
func ZoneOfRegion(provider, region string) (zone Zone, ok bool) {
	providers := []string{strings.ToLower(provider)}
	switch providers[0] {
	case "gce": // as in the provider ID of a node
		providers[0] = "gcp"
	case "":
		providers = []string{"aws", "azure", "gcp"}
	}
	for _, p := range providers {
		found := zonesByRegion[p+"/"+strings.ToLower(region)]
		if found != "" && zone != "" && found != zone {
			return "", false
		}
		zone = cmp.Or(zone, found)
	}
	return zone, zone != ""
}

// zonesByRegion is the inverse of cloudRegions.
var zonesByRegion = byRegion(cloudRegions)

func byRegion(zones map[Zone][]string) map[string]Zone {
	all := map[string]Zone{}
	for zone, regions := range zones {
		for _, region := range regions {
			all[region] = zone
		}
	}
	return all
}

// cloudRegions maps each zone of Electricity Maps to the cloud regions in it, according to the providers.
var cloudRegions = map[Zone][]string{
	"AE": {"aws/me-central-1", "azure/uaecentral", "azure/uaenorth"},
	"AT": {"azure/austriaeast"},
	"AU-NSW": {
		"aws/ap-southeast-2", "azure/australiacentral", "azure/australiacentral2", "azure/australiaeast",
		"gcp/australia-southeast1",
	},
	"AU-VIC": {"aws/ap-southeast-4", "azure/australiasoutheast", "gcp/australia-southeast2"},
	"BE":     {"azure/belgiumcentral", "gcp/europe-west1"},
	"BH":     {"aws/me-south-1"},
	"BR-CS":  {"aws/sa-east-1", "azure/brazilsouth", "azure/brazilsoutheast", "gcp/southamerica-east1"},
	"CA-AB":  {"aws/ca-west-1"},
	"CA-ON":  {"azure/canadacentral", "gcp/northamerica-northeast2"},
	"CA-QC":  {"aws/ca-central-1", "azure/canadaeast", "gcp/northamerica-northeast1"},
	"CH":     {"aws/eu-central-2", "azure/switzerlandnorth", "azure/switzerlandwest", "gcp/europe-west6"},
	"CL-SEN": {"azure/chilecentral", "gcp/southamerica-west1"},
	"CN": {
		"aws/cn-north-1", "aws/cn-northwest-1", "azure/chinaeast", "azure/chinaeast2", "azure/chinaeast3",
		"azure/chinanorth", "azure/chinanorth2", "azure/chinanorth3",
	},
	"DE": {
		"aws/eu-central-1", "aws/eusc-de-east-1", "azure/germanynorth", "azure/germanywestcentral",
		"gcp/europe-west10", "gcp/europe-west3",
	},
	"DK-DK2": {"azure/denmarkeast"},
	"ES":     {"aws/eu-south-2", "azure/spaincentral", "gcp/europe-southwest1"},
	"FI":     {"azure/finlandcentral", "gcp/europe-north1"},
	"FR":     {"aws/eu-west-3", "azure/francecentral", "azure/francesouth", "gcp/europe-west9"},
	"GB":     {"aws/eu-west-2", "azure/uksouth", "azure/ukwest", "gcp/europe-west2"},
	"HK":     {"aws/ap-east-1", "azure/eastasia", "gcp/asia-east2"},
	"ID":     {"aws/ap-southeast-3", "azure/indonesiacentral", "gcp/asia-southeast2"},
	"IE":     {"aws/eu-west-1", "azure/northeurope"},
	"IL":     {"aws/il-central-1", "azure/israelcentral", "gcp/me-west1"},
	"IN-NO":  {"gcp/asia-south2"},
	"IN-SO":  {"aws/ap-south-2", "azure/southcentralindia", "azure/southindia"},
	"IN-WE": {
		"aws/ap-south-1", "azure/centralindia", "azure/jioindiacentral", "azure/jioindiawest", "azure/westindia",
		"gcp/asia-south1",
	},
	"IT-NO":       {"aws/eu-south-1", "azure/italynorth", "gcp/europe-west12", "gcp/europe-west8"},
	"JP-KN":       {"aws/ap-northeast-3", "azure/japanwest", "gcp/asia-northeast2"},
	"JP-TK":       {"aws/ap-northeast-1", "azure/japaneast", "gcp/asia-northeast1"},
	"KR":          {"aws/ap-northeast-2", "azure/koreacentral", "azure/koreasouth", "gcp/asia-northeast3"},
	"MX":          {"aws/mx-central-1", "azure/mexicocentral", "gcp/northamerica-south1"},
	"MY-WM":       {"aws/ap-southeast-5", "azure/malaysiawest"},
	"NL":          {"azure/westeurope", "gcp/europe-west4"},
	"NO-NO1":      {"azure/norwayeast"},
	"NO-NO2":      {"azure/norwaywest"},
	"NZ":          {"aws/ap-southeast-6", "azure/newzealandnorth"},
	"PL":          {"azure/polandcentral", "gcp/europe-central2"},
	"QA":          {"azure/qatarcentral", "gcp/me-central1"},
	"SA":          {"gcp/me-central2"},
	"SE-SE3":      {"aws/eu-north-1", "azure/swedencentral", "gcp/europe-north2"},
	"SE-SE4":      {"azure/swedensouth"},
	"SG":          {"aws/ap-southeast-1", "azure/southeastasia", "gcp/asia-southeast1"},
	"TH":          {"aws/ap-southeast-7", "gcp/asia-southeast3"},
	"TW":          {"aws/ap-east-2", "azure/taiwannorth", "gcp/asia-east1"},
	"US-CAL-CISO": {"aws/us-west-1", "azure/westus", "gcp/us-west2"},
	"US-CAR-SC":   {"gcp/us-east1"},
	"US-MIDA-PJM": {
		"aws/us-east-1", "aws/us-east-2", "aws/us-gov-east-1", "azure/eastus", "azure/eastus2",
		"azure/northcentralus", "azure/usdodeast", "azure/usgovvirginia", "gcp/us-east4", "gcp/us-east5",
	},
	"US-MIDW-MISO": {"azure/centralus", "azure/usdodcentral", "azure/usgoviowa", "gcp/us-central1"},
	"US-NW-BPAT":   {"aws/us-gov-west-1", "aws/us-west-2", "gcp/us-west1"},
	"US-NW-GCPD":   {"azure/westus2"},
	"US-NW-NEVP":   {"gcp/us-west4"},
	"US-NW-PACE":   {"gcp/us-west3"},
	"US-NW-WACM":   {"azure/westcentralus"},
	"US-SE-SOCO":   {"azure/eastus3"},
	"US-SW-SRP":    {"azure/usgovarizona", "azure/westus3"},
	"US-TEX-ERCO":  {"azure/southcentralus", "azure/usgovtexas", "gcp/us-south1"},
	"ZA":           {"aws/af-south-1", "azure/southafricanorth", "azure/southafricawest", "gcp/africa-south1"},
}

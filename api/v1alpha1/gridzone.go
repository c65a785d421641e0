package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GridZone is an area of the electricity grid. Its spec lists the sources of its carbon intensity and price, and
// its status contains the current values and forecasts. kubenergy-controller updates the status, and the scheduler
// reads it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gz,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.zone`
// +kubebuilder:printcolumn:name="gCO2e/kWh",type=number,JSONPath=`.status.carbon.now`
// +kubebuilder:printcolumn:name="Quality",type=string,JSONPath=`.status.carbon.quality`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.carbon.source`
// +kubebuilder:printcolumn:name="Signal age",type=date,JSONPath=`.status.carbon.asOf`
// +kubebuilder:printcolumn:name="Forecast",type=string,JSONPath=`.status.carbon.forecastSource`
// +kubebuilder:printcolumn:name="Price",type=number,JSONPath=`.status.price.now`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type GridZone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GridZoneSpec `json:"spec"`
	// +optional
	Status GridZoneStatus `json:"status,omitempty"`
}

// GridZoneList is a list of GridZones.
//
// +kubebuilder:object:root=true
type GridZoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GridZone `json:"items"`
}

// GridZoneSpec defines the nodes in a zone and the sources of its signals.
type GridZoneSpec struct {
	// zone is the identifier of the grid zone at Electricity Maps, e.g. DE or US-CAL-CISO.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Zone string `json:"zone"`
	// default determines whether nodes without a zone belong to this zone. If several zones are marked as default,
	// the first by name is used.
	// +optional
	Default bool `json:"default,omitempty"`
	// regions lists cloud regions in the zone, e.g. eu-central-1. Well-known regions need not be listed.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Regions []string `json:"regions,omitempty"`
	// pue is the facility energy divided by the energy of the nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	PUE *float64 `json:"pue,omitempty"`
	// carbon defines the sources of the carbon intensity of electricity.
	// +optional
	Carbon *CarbonSpec `json:"carbon,omitempty"`
	// price defines the sources of the price of electricity.
	// +optional
	Price *PriceSpec `json:"price,omitempty"`
}

// CarbonSpec defines the kind and the sources of the carbon intensity.
type CarbonSpec struct {
	// signal is the kind of carbon intensity: the average of all generation, or the marginal intensity of the
	// generation that would supply an additional kilowatt-hour. The two are never mixed, so a source of the other
	// kind is rejected.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// maxAge is the maximum age of the last valid response. Older values are not used.
	// +optional
	// +kubebuilder:default="2h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="must be between 1m and 744h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// sources are queried in the given order until one of them returns a valid response.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Sources []CarbonSource `json:"sources"`
	// history is a file with past values, from which forecasts are trained. Without it, the values of the sources are
	// recorded, and forecasts are trained after three months.
	// +optional
	History *FileSource `json:"history,omitempty"`
}

// CarbonSource is a source of the carbon intensity.
//
// +kubebuilder:validation:XValidation:rule="[has(self.electricityMaps),has(self.ukCarbonIntensity),has(self.wattTime),has(self.prometheus),has(self.http),has(self.file),has(self.static),has(self.typical)].filter(x,x).size()==1",message="exactly one kind of source is required"
type CarbonSource struct {
	// every is the polling interval. Defaults to the update interval of the provider.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be between 1m and 168h"
	Every *metav1.Duration `json:"every,omitempty"`
	// maxCallsPerHour is the maximum number of requests per hour, across all replicas and restarts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxCallsPerHour *int32 `json:"maxCallsPerHour,omitempty"`

	// +optional
	ElectricityMaps *ElectricityMapsSource `json:"electricityMaps,omitempty"`
	// +optional
	UKCarbonIntensity *UKCarbonIntensitySource `json:"ukCarbonIntensity,omitempty"`
	// +optional
	WattTime *WattTimeSource `json:"wattTime,omitempty"`
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// +optional
	HTTP *HTTPSource `json:"http,omitempty"`
	// +optional
	File *FileSource `json:"file,omitempty"`
	// +optional
	Static *StaticSource `json:"static,omitempty"`
	// +optional
	Typical *TypicalSource `json:"typical,omitempty"`
}

// PriceSpec defines the currency and the sources of the price.
type PriceSpec struct {
	// currency is the ISO 4217 code of the currency of all sources.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// maxAge is the maximum age of the last valid response. Older values are not used. Tariffs do not expire.
	// +optional
	// +kubebuilder:default="36h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="must be between 1m and 744h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// sources are queried in the given order until one of them returns a valid response.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Sources []PriceSource `json:"sources"`
}

// PriceSource is a source of prices.
//
// +kubebuilder:validation:XValidation:rule="[has(self.tariff),has(self.entsoe),has(self.electricityMaps),has(self.octopus),has(self.prometheus),has(self.http),has(self.file),has(self.static)].filter(x,x).size()==1",message="exactly one kind of source is required"
type PriceSource struct {
	// every is the polling interval. Defaults to the update interval of the provider.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be between 1m and 168h"
	Every *metav1.Duration `json:"every,omitempty"`
	// maxCallsPerHour is the maximum number of requests per hour, across all replicas and restarts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxCallsPerHour *int32 `json:"maxCallsPerHour,omitempty"`

	// +optional
	Tariff *TariffSource `json:"tariff,omitempty"`
	// +optional
	ENTSOE *ENTSOESource `json:"entsoe,omitempty"`
	// +optional
	ElectricityMaps *ElectricityMapsSource `json:"electricityMaps,omitempty"`
	// +optional
	Octopus *OctopusSource `json:"octopus,omitempty"`
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// +optional
	HTTP *HTTPSource `json:"http,omitempty"`
	// +optional
	File *FileSource `json:"file,omitempty"`
	// +optional
	Static *StaticSource `json:"static,omitempty"`
}

// ElectricityMapsSource reads the carbon intensity or day-ahead prices from the Electricity Maps API.
type ElectricityMapsSource struct {
	// zone is the zone to query. Defaults to the zone of the GridZone.
	// +optional
	Zone string `json:"zone,omitempty"`
	// key is the name of the key file with the API token.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// version is the version of the API.
	// +optional
	// +kubebuilder:validation:Enum=v3;v4
	// +kubebuilder:default=v4
	Version string `json:"version,omitempty"`
	// url is the base URL of the API without the version. Defaults to the public endpoint.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
	// emissionFactors determines whether the emissions include the whole life cycle of power plants or only direct
	// emissions.
	// +optional
	// +kubebuilder:validation:Enum=Lifecycle;Direct
	// +kubebuilder:default=Lifecycle
	EmissionFactors string `json:"emissionFactors,omitempty"`
	// forecast determines whether the forecast of the provider is queried as well. This requires a paid plan.
	// +optional
	Forecast bool `json:"forecast,omitempty"`
}

// UKCarbonIntensitySource reads the carbon intensity of Great Britain or of one of its regions from
// carbonintensity.org.uk. It needs no key.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.postcode) && has(self.regionID))",message="postcode and regionID are mutually exclusive"
type UKCarbonIntensitySource struct {
	// postcode is the outward postcode of the region, e.g. RG10.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z]{1,2}[0-9][0-9A-Z]?$`
	Postcode string `json:"postcode,omitempty"`
	// regionID is the number of the region, from 1 to 17. Without a regionID and a postcode, the source returns
	// values for all of Great Britain.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=17
	RegionID int32 `json:"regionID,omitempty"`
	// url is the base URL of the API. Defaults to the public endpoint.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// WattTimeSource reads the marginal carbon intensity from the WattTime API v3.
type WattTimeSource struct {
	// region is the region to query, e.g. CAISO_NORTH.
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
	// key is the name of the key file with the user name and the password, separated by a colon.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
	// url is the base URL of the API. Defaults to the public endpoint.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// PrometheusSource reads the current value from a Prometheus server with a query.
type PrometheusSource struct {
	// url is the base URL of the server.
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`
	// query is a PromQL query that returns a single value.
	// +kubebuilder:validation:MinLength=1
	Query string `json:"query"`
	// unit is the unit of the value.
	// +optional
	Unit Unit `json:"unit,omitempty"`
	// signal is the kind of carbon intensity of this source. It must match the kind of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// measured determines whether the value is measured instead of estimated. A measured value is rejected if it
	// has not changed for six hours, an estimated value if it has not changed for a day.
	// +optional
	Measured bool `json:"measured,omitempty"`
	// key is the name of the key file with a bearer token.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// allowPrivateAddress allows a server with a private address, e.g. inside the cluster or the site. Loopback
	// addresses and metadata services remain blocked.
	// +optional
	AllowPrivateAddress bool `json:"allowPrivateAddress,omitempty"`
}

// HTTPSource reads values from any HTTP service that returns JSON.
type HTTPSource struct {
	// url is the URL of the GET request. {zone} is replaced by the zone.
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`
	// value is the path of the current value in the response, e.g. data.0.intensity.
	// +optional
	Value string `json:"value,omitempty"`
	// time is the path of the time at which the value was issued. Defaults to the time of the response.
	// +optional
	Time string `json:"time,omitempty"`
	// list is the path of a list of past, current and future values, as an alternative to value.
	// +optional
	List string `json:"list,omitempty"`
	// listTime is the path of the time within a list entry.
	// +optional
	ListTime string `json:"listTime,omitempty"`
	// listValue is the path of the value within a list entry.
	// +optional
	ListValue string `json:"listValue,omitempty"`
	// zone is the path of the zone in the response. The zone in the response must match the requested zone.
	// +optional
	Zone string `json:"zone,omitempty"`
	// unit is the unit of the values.
	// +optional
	Unit Unit `json:"unit,omitempty"`
	// signal is the kind of carbon intensity of this source. It must match the kind of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// key is the name of the key file with the content of the header.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// header is the name of the header that contains the key.
	// +optional
	// +kubebuilder:default=Authorization
	Header string `json:"header,omitempty"`
	// measured determines whether the values are measured instead of estimated. Measured values are rejected if
	// they have not changed for six hours, estimated values if they have not changed for a day.
	// +optional
	Measured bool `json:"measured,omitempty"`
	// allowPrivateAddress allows a server with a private address, e.g. inside the cluster or the site. Loopback
	// addresses and metadata services remain blocked.
	// +optional
	AllowPrivateAddress bool `json:"allowPrivateAddress,omitempty"`
}

// Unit is the unit of the values of a source. Defaults to gCO2e/kWh for carbon intensity and to the currency per
// kWh for prices.
//
// +kubebuilder:validation:Enum="g/kWh";"kg/MWh";"lb/MWh";"kg/kWh";"per-kWh";"per-MWh";"cents/kWh"
type Unit string

// FileSource is a CSV file in the data directory of the controller. The section "Grid" of docs/reference/formats.md
// describes its format.
type FileSource struct {
	// path is the path of the file, relative to the data directory.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="must be a relative path below the data directory"
	Path string `json:"path"`
	// column is the column with the values. Defaults to ci_lifecycle_g_per_kwh, or to the only column.
	// +optional
	Column string `json:"column,omitempty"`
	// zone is the zone to read if the file contains several zones.
	// +optional
	Zone string `json:"zone,omitempty"`
	// signal is the kind of carbon intensity of this source. It must match the kind of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
}

// StaticSource is a constant value.
type StaticSource struct {
	// value is the constant value, in gCO2e/kWh or in the currency per kWh.
	Value float64 `json:"value"`
}

// TypicalSource is the bundled curve of a typical day in the zone, by season. Its values are always estimated. It
// needs no key and never fails.
type TypicalSource struct {
	// zone is the zone of the curve. Defaults to the zone of the GridZone.
	// +optional
	Zone string `json:"zone,omitempty"`
}

// TariffSource is a time-of-use tariff. The first matching schedule determines the price.
//
// +kubebuilder:validation:XValidation:rule="has(self.file) != has(self.price) && !(has(self.file) && has(self.schedules))",message="either price, with optional schedules, or file is required"
type TariffSource struct {
	// price is the price if no schedule matches, in the currency per kWh.
	// +optional
	Price *float64 `json:"price,omitempty"`
	// file is the path of a pricing-schedules.yaml of Compute Gardener, relative to the data directory. It replaces
	// price and schedules.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="must be a relative path below the data directory"
	File string `json:"file,omitempty"`
	// timeZone is the IANA time zone of all schedules without a time zone.
	// +optional
	// +kubebuilder:default=UTC
	TimeZone string `json:"timeZone,omitempty"`
	// schedules lists prices by day and hour.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Schedules []TariffSchedule `json:"schedules,omitempty"`
	// holidays is a country or subdivision, e.g. DE or US. Its public holidays are treated as Sundays.
	// +optional
	Holidays string `json:"holidays,omitempty"`
}

// TariffSchedule is a price during certain hours on certain days.
type TariffSchedule struct {
	// days lists the days of the week, with 0 or 7 for Sunday, e.g. "1-5" or "0,6". Defaults to all days.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-7](-[0-7])?(,[0-7](-[0-7])?)*$`
	Days string `json:"days,omitempty"`
	// months lists the months from 1 to 12, e.g. "6-9". Defaults to all months.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*$`
	Months string `json:"months,omitempty"`
	// start is the first minute of the schedule, as HH:MM in local time.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// end is the first minute after the schedule, as HH:MM or 24:00 in local time. If it is not after start, the
	// schedule ends on the next day.
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	End string `json:"end"`
	// price is the price in the currency per kWh.
	Price float64 `json:"price"`
	// timeZone is the IANA time zone of the schedule.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// ENTSOESource reads day-ahead prices from the transparency platform of the European grid operators.
type ENTSOESource struct {
	// domain is the EIC code of the bidding zone, e.g. 10Y1001A1001A82H.
	// +kubebuilder:validation:Pattern=`^[0-9A-Z-]{16}$`
	Domain string `json:"domain"`
	// key is the name of the key file with the security token.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
	// url is the base URL of the API. Defaults to the public endpoint.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// OctopusSource reads the Agile tariff of Octopus Energy in Great Britain. It needs no key.
type OctopusSource struct {
	// product is the code of the product, e.g. AGILE-24-10-01.
	// +kubebuilder:validation:Pattern=`^[A-Z0-9-]+$`
	Product string `json:"product"`
	// tariff is the code of the tariff, e.g. E-1R-AGILE-24-10-01-C.
	// +kubebuilder:validation:Pattern=`^[A-Z0-9-]+$`
	Tariff string `json:"tariff"`
	// url is the base URL of the API. Defaults to the public endpoint.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// GridZoneStatus defines the observed state of GridZone.
type GridZoneStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Carbon *SignalStatus `json:"carbon,omitempty"`
	// +optional
	Price *SignalStatus `json:"price,omitempty"`
	// nodes is the number of nodes in the zone. Holds do not wait for the signals of zones without nodes.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// conditions includes Ready, which is true if the carbon intensity, or the price if only the price is
	// configured, is known and not too old.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Condition types of KubEnergy objects.
const (
	ConditionReady = "Ready" // GridZone
	ConditionValid = "Valid" // PowerProfile, EnergyPolicy
)

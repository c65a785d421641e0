package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GridZone is an area of the electricity grid: where its carbon intensity and its price come from, and, in its status,
// what they are now and are forecast to be. kubenergy-controller fills the status; the scheduler only reads it.
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

// GridZoneSpec says which nodes a zone feeds and who is asked about it.
type GridZoneSpec struct {
	// Identifier of the grid zone, as Electricity Maps names it: DE, US-CAL-CISO.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Zone string `json:"zone"`
	// Nodes that nothing else maps to a zone belong to this one. Where several say so, the first by name does.
	// +optional
	Default bool `json:"default,omitempty"`
	// Cloud regions whose nodes belong here, as in eu-central-1. Well-known regions need not be listed.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Regions []string `json:"regions,omitempty"`
	// Facility energy divided by node energy.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	PUE *float64 `json:"pue,omitempty"`
	// Carbon intensity of electricity.
	// +optional
	Carbon *CarbonSpec `json:"carbon,omitempty"`
	// Price of electricity.
	// +optional
	Price *PriceSpec `json:"price,omitempty"`
}

// CarbonSpec says which carbon intensity is meant, and who knows it.
type CarbonSpec struct {
	// Average intensity of all generation, or marginal intensity of what one more kilowatt-hour would be generated
	// by. The two are never mixed: a source of the other kind is refused.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// Age beyond which the last good answer is no answer.
	// +optional
	// +kubebuilder:default="2h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="want 1m to 744h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// Asked in this order; the first that answers well is believed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Sources []CarbonSource `json:"sources"`
}

// CarbonSource is one source of carbon intensity.
//
// +kubebuilder:validation:XValidation:rule="[has(self.electricityMaps),has(self.ukCarbonIntensity),has(self.wattTime),has(self.prometheus),has(self.http),has(self.file),has(self.static),has(self.typical)].filter(x,x).size()==1",message="name exactly one kind of source"
type CarbonSource struct {
	// Polling interval; by default that of the provider's own updates.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="want 1m to 168h"
	Every *metav1.Duration `json:"every,omitempty"`
	// Requests that may be made to it in an hour, over all replicas and restarts.
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

// PriceSpec says in which currency electricity is paid, and who knows its price.
type PriceSpec struct {
	// ISO 4217 code of the currency of all sources.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// Age beyond which the last good answer is no answer. Tariffs do not age.
	// +optional
	// +kubebuilder:default="36h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="want 1m to 744h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// Asked in this order; the first that answers well is believed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Sources []PriceSource `json:"sources"`
}

// PriceSource is one source of prices.
//
// +kubebuilder:validation:XValidation:rule="[has(self.tariff),has(self.entsoe),has(self.electricityMaps),has(self.octopus),has(self.prometheus),has(self.http),has(self.file),has(self.static)].filter(x,x).size()==1",message="name exactly one kind of source"
type PriceSource struct {
	// Polling interval; by default that of the provider's own updates.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="want 1m to 168h"
	Every *metav1.Duration `json:"every,omitempty"`
	// Requests that may be made to it in an hour, over all replicas and restarts.
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

// ElectricityMapsSource is the API of Electricity Maps: carbon intensity, or day-ahead prices.
type ElectricityMapsSource struct {
	// Zone to ask for; by default that of the GridZone.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Name of the key file with the API token.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// Version of the API.
	// +optional
	// +kubebuilder:validation:Enum=v3;v4
	// +kubebuilder:default=v4
	Version string `json:"version,omitempty"`
	// Base URL without the version; by default the public one.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
	// Whether factors count the whole life cycle of plants, or what they emit directly.
	// +optional
	// +kubebuilder:validation:Enum=Lifecycle;Direct
	// +kubebuilder:default=Lifecycle
	EmissionFactors string `json:"emissionFactors,omitempty"`
	// Also ask for the provider's forecast, which needs a paid plan.
	// +optional
	Forecast bool `json:"forecast,omitempty"`
}

// UKCarbonIntensitySource is carbonintensity.org.uk, of Great Britain or one of its regions. It needs no key.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.postcode) && has(self.regionID))",message="name a postcode or a regionID, not both"
type UKCarbonIntensitySource struct {
	// Outward postcode of the region, as in RG10.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z]{1,2}[0-9][0-9A-Z]?$`
	Postcode string `json:"postcode,omitempty"`
	// Number of the region, 1 to 17; without it and a postcode, all of Great Britain.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=17
	RegionID int32 `json:"regionID,omitempty"`
	// Base URL; by default the public one.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// WattTimeSource is WattTime's API v3: marginal intensity.
type WattTimeSource struct {
	// Region to ask for, as in CAISO_NORTH.
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
	// Name of the key file with user name and password, separated by a colon.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
	// Base URL; by default the public one.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// PrometheusSource is a query of a Prometheus server that gives one value: that of now.
type PrometheusSource struct {
	// Base URL of the server.
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`
	// PromQL that gives one value.
	// +kubebuilder:validation:MinLength=1
	Query string `json:"query"`
	// Unit of the query's value.
	// +optional
	Unit Unit `json:"unit,omitempty"`
	// Whether carbon intensity is of this kind; it must be that of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// The value is measured rather than estimated: then one that has not moved for six hours is refused, otherwise
	// one that has not for a day.
	// +optional
	Measured bool `json:"measured,omitempty"`
	// Name of the key file with a bearer token.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// The server's address is inside the cluster or the site, where addresses are private. Loopback and metadata
	// services stay out of reach.
	// +optional
	AllowPrivateAddress bool `json:"allowPrivateAddress,omitempty"`
}

// HTTPSource is any service that answers in JSON: your own source.
type HTTPSource struct {
	// Requested with GET; {zone} is replaced by the zone.
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`
	// Path of the present value in the answer, as in data.0.intensity.
	// +optional
	Value string `json:"value,omitempty"`
	// Path of the time at which the value was issued; by default that of the answer.
	// +optional
	Time string `json:"time,omitempty"`
	// Path of a list of past, present and future values, in place of value.
	// +optional
	List string `json:"list,omitempty"`
	// Path of the time within an entry of the list.
	// +optional
	ListTime string `json:"listTime,omitempty"`
	// Path of the value within an entry of the list.
	// +optional
	ListValue string `json:"listValue,omitempty"`
	// Path of the zone in the answer, which must be the one that was asked for.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Unit of the values.
	// +optional
	Unit Unit `json:"unit,omitempty"`
	// Whether carbon intensity is of this kind; it must be that of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
	// Name of the key file whose content is sent in the header.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key,omitempty"`
	// Header that carries the key.
	// +optional
	// +kubebuilder:default=Authorization
	Header string `json:"header,omitempty"`
	// The values are measured rather than estimated: then those that have not moved for six hours are refused,
	// otherwise those that have not for a day.
	// +optional
	Measured bool `json:"measured,omitempty"`
	// The server's address is inside the cluster or the site, where addresses are private. Loopback and metadata
	// services stay out of reach.
	// +optional
	AllowPrivateAddress bool `json:"allowPrivateAddress,omitempty"`
}

// Unit is the unit of a source's values. By default that of the quantity: gCO2e/kWh, or the currency per kWh.
//
// +kubebuilder:validation:Enum="g/kWh";"kg/MWh";"lb/MWh";"kg/kWh";"per-kWh";"per-MWh";"cents/kWh"
type Unit string

// FileSource is a CSV file in the controller's data folder, as docs/reference/formats.md describes it under "Grid".
type FileSource struct {
	// Name below the data folder.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="a file lies below the data folder"
	Path string `json:"path"`
	// Column with the values; by default ci_lifecycle_g_per_kwh, or the only one.
	// +optional
	Column string `json:"column,omitempty"`
	// Zone to read, where the file has several.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Whether carbon intensity is of this kind; it must be that of the GridZone.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	Signal string `json:"signal,omitempty"`
}

// StaticSource is one value that holds always.
type StaticSource struct {
	// In gCO2e/kWh, or in the currency per kWh.
	Value float64 `json:"value"`
}

// TypicalSource is the bundled curve of a typical day of the zone, by season. It is always estimated, needs no key and
// never fails.
type TypicalSource struct {
	// Zone whose curve is used; by default that of the GridZone.
	// +optional
	Zone string `json:"zone,omitempty"`
}

// TariffSource is a time-of-use tariff. Schedules are tried in their order; the first that matches gives the price.
//
// +kubebuilder:validation:XValidation:rule="has(self.file) != has(self.price) && !(has(self.file) && has(self.schedules))",message="name a price, with schedules or without, or a file in place of both"
type TariffSource struct {
	// Price where no schedule matches, in the currency per kWh.
	// +optional
	Price *float64 `json:"price,omitempty"`
	// Pricing schedules of Compute Gardener, as its pricing-schedules.yaml has them, in place of price and schedules.
	// Name below the data folder.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="a file lies below the data folder"
	File string `json:"file,omitempty"`
	// IANA time zone of all schedules that name none.
	// +optional
	// +kubebuilder:default=UTC
	TimeZone string `json:"timeZone,omitempty"`
	// Prices at some hours of some days.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Schedules []TariffSchedule `json:"schedules,omitempty"`
	// Country or subdivision whose public holidays count as Sundays, as in DE or US.
	// +optional
	Holidays string `json:"holidays,omitempty"`
}

// TariffSchedule is a price at some hours of some days.
type TariffSchedule struct {
	// Days of the week, 0 or 7 for Sunday: "1-5", "0,6". By default all.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-7](-[0-7])?(,[0-7](-[0-7])?)*$`
	Days string `json:"days,omitempty"`
	// Months, 1 to 12: "6-9". By default all.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*$`
	Months string `json:"months,omitempty"`
	// First minute, HH:MM local time.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// First minute that no longer counts, HH:MM or 24:00. An end that is not after the start is on the next day.
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	End string `json:"end"`
	// In the currency per kWh.
	Price float64 `json:"price"`
	// IANA time zone.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// ENTSOESource is the transparency platform of the European grid operators: day-ahead prices.
type ENTSOESource struct {
	// EIC code of the bidding zone, as in 10Y1001A1001A82H.
	// +kubebuilder:validation:Pattern=`^[0-9A-Z-]{16}$`
	Domain string `json:"domain"`
	// Name of the key file with the security token.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Key string `json:"key"`
	// Base URL; by default the public one.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// OctopusSource is the Agile tariff of Octopus Energy in Great Britain. It needs no key.
type OctopusSource struct {
	// Code of the product, as AGILE-24-10-01.
	// +kubebuilder:validation:Pattern=`^[A-Z0-9-]+$`
	Product string `json:"product"`
	// Code of the tariff, as E-1R-AGILE-24-10-01-C.
	// +kubebuilder:validation:Pattern=`^[A-Z0-9-]+$`
	Tariff string `json:"tariff"`
	// Base URL; by default the public one.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url,omitempty"`
}

// GridZoneStatus is what is known about the zone.
type GridZoneStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Carbon *SignalStatus `json:"carbon,omitempty"`
	// +optional
	Price *SignalStatus `json:"price,omitempty"`
	// Nodes that the zone feeds. Holds do not wait for zones without any.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// Ready: the carbon intensity, or the price where only that is asked for, is known and fresh.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SignalStatus is a signal: what it is now, and what it is forecast to be.
type SignalStatus struct {
	// Value when the status was written.
	Now float64 `json:"now"`
	// gCO2e/kWh, or a currency per kWh.
	Unit string `json:"unit"`
	// +kubebuilder:validation:Enum=measured;derived;estimated
	Quality string `json:"quality"`
	// The source that was believed.
	Source string `json:"source"`
	// When that source issued the present value. Absent for what does not age.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// Start of the first value.
	Start metav1.Time `json:"start"`
	// How long each value holds.
	Step metav1.Duration `json:"step"`
	// The present and the future, in the signal's unit.
	// +kubebuilder:validation:MaxItems=2016
	Values []float64 `json:"values"`
	// Who forecast: the source, or one of our models.
	// +optional
	ForecastSource string `json:"forecastSource,omitempty"`
	// Tenth and ninetieth percentile of each value, where the forecast gives them.
	// +optional
	// +kubebuilder:validation:MaxItems=2016
	Low []float64 `json:"low,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=2016
	High []float64 `json:"high,omitempty"`
}

// What the conditions of our objects say.
const (
	ConditionReady = "Ready" // GridZone
	ConditionValid = "Valid" // PowerProfile, EnergyPolicy
)

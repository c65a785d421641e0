package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SignalStatus contains the current value and the forecast of a signal.
type SignalStatus struct {
	// now is the value at the time of the last status update.
	Now float64 `json:"now"`
	// unit is gCO2e/kWh or a currency per kWh.
	Unit string `json:"unit"`
	// +kubebuilder:validation:Enum=measured;derived;estimated
	Quality string `json:"quality"`
	// source is the source of the current value.
	Source string `json:"source"`
	// asOf is the time at which the source issued the current value. Absent if the value does not expire.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// start is the start of the first value.
	Start metav1.Time `json:"start"`
	// step is the duration of each value.
	Step metav1.Duration `json:"step"`
	// values contains the current and future values, in the unit of the signal.
	// +kubebuilder:validation:MaxItems=2016
	Values []float64 `json:"values"`
	// forecastSource is the origin of the forecast: the source, or a forecast model of KubEnergy.
	// +optional
	ForecastSource string `json:"forecastSource,omitempty"`
	// low contains the 10th percentile of each value, if the forecast provides percentiles. high contains the 90th
	// percentile.
	// +optional
	// +kubebuilder:validation:MaxItems=2016
	Low []float64 `json:"low,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=2016
	High []float64 `json:"high,omitempty"`
	// accuracy contains the accuracy of the forecasts of the last four weeks, as they were issued every hour, by lead
	// time.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	Accuracy []ForecastAccuracy `json:"accuracy,omitempty"`
}

// ForecastAccuracy is the accuracy of the forecasts of an hour, compared with its recorded mean.
type ForecastAccuracy struct {
	// ahead is the lead time: the time from the start of the hour in which a forecast was issued to the start of the
	// forecast hour.
	Ahead metav1.Duration `json:"ahead"`
	// errorPercent is the mean absolute error, relative to the mean absolute value.
	ErrorPercent float64 `json:"errorPercent"`
	// insidePercent is the percentage of values between the 10th and the 90th percentile, which is 80 for accurate
	// percentiles. Absent if the forecasts have no percentiles.
	// +optional
	InsidePercent *float64 `json:"insidePercent,omitempty"`
	// forecasts is the number of forecasts.
	Forecasts int32 `json:"forecasts"`
}

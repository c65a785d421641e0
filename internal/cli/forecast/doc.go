// Package forecast implements the command forecast, which shows forecasts of a GridZone or a file and evaluates
// forecast models.
package forecast

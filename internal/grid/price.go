package grid

// MaxPrice is above any price per kWh in euros, dollars and currencies of similar value, but below spot prices per
// MWh.
const MaxPrice = 20

// MaxPriceOf returns the maximum plausible price per kWh in a currency, given its ISO 4217 code. For other or
// unknown currencies it returns MaxPrice.
func MaxPriceOf(currency string) Price {
	if scale, ok := small[currency]; ok {
		return Price(MaxPrice * scale)
	}
	return MaxPrice
}

// small contains currencies of low value with the factor for their maximum price.
var small = map[string]float64{
	"CZK": 10, "DKK": 10, "INR": 10, "MXN": 10, "NOK": 10, "PHP": 10, "SEK": 10, "THB": 10, "TRY": 10, "TWD": 10,
	"UAH": 10,
	"HUF": 100, "ISK": 100, "JPY": 100, "KES": 100, "NGN": 100, "PKR": 100, "RSD": 100, "ARS": 1000, "CLP": 1000,
	"COP": 1000,
	"KRW": 1000, "IDR": 10_000, "VND": 10_000,
}

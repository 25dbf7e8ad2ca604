package metrics

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

const openMetrics = "application/openmetrics-text"

// page answers scrapes as Python's client does: OpenMetrics to whoever names it among what it accepts, plain text to
// everybody else. since are series that only the plain text has; created says that OpenMetrics tells since when
// a counter counts.
func page(all prometheus.Gatherer, since prometheus.Gatherers, created bool) http.Handler {
	text := promhttp.HandlerFor(append(prometheus.Gatherers{all}, since...), promhttp.HandlerOpts{
		DisableCompression: true, AcceptedFormats: []expfmt.Format{expfmt.NewFormat(expfmt.TypeTextPlain)},
	})
	open := promhttp.HandlerFor(all, promhttp.HandlerOpts{
		DisableCompression: true, AcceptedFormats: openFormats(), EnableOpenMetricsTextCreatedSamples: created,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), openMetrics) {
			open.ServeHTTP(w, r)
			return
		}
		text.ServeHTTP(w, r)
	})
}

// openFormats are the versions of OpenMetrics that are answered.
func openFormats() (all []expfmt.Format) {
	for _, f := range expfmt.DefaultOpenMetricsAcceptedFormats() {
		if f.FormatType() == expfmt.TypeOpenMetrics {
			all = append(all, f)
		}
	}
	return all
}

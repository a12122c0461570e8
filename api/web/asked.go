package web

import "net/http"

// asked puts the question who is there before a site, where it is asked.
func asked(site http.Handler, o Options) http.Handler {
	if o.Ask == nil {
		return site
	}
	return o.Ask(site)
}

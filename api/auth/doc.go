// Package auth says who asks, and who may do what.
//
// It stands on both sides of the wire and knows neither: a server guards its calls
// with a Guard, a client is dialled with what a Client names. A caller is known by a
// token, a client certificate of a private CA (package pki), or, on a unix socket, by
// the account that the kernel names.
//
//	role      may
//	viewer    read
//	measurer  measure, and change and delete what is their own
//	operator  end and release captures of others: the bench is theirs to run
//	admin     delete tasks of others; look into the program
//
// Rows is the whole table of calls. A call that has no row is refused.
//
// Where no authentication is configured nobody is asked: From then has nothing to
// say, and Own and May refuse nothing.
package auth

// Runs rounds of a GPU on a SimGrid platform, one process a call:
//
//   rounds PLATFORM FLOPS ROUNDS REST
//
// and writes SimGrid's version, then clock and consumed energy after the rounds,
// and both again after REST seconds without work. It uses SimGrid's C interface,
// which compiles in a tenth of the time that its C++ headers take.
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/plugins/energy.h>
#include <simgrid/version.h>

#include <cstdio>
#include <cstdlib>

namespace {

double flops, rest;
unsigned long long rounds;
double at[2], joules[2];

void look(int n) {
  at[n] = simgrid_get_clock();
  joules[n] = sg_host_get_consumed_energy(sg_actor_get_host(sg_actor_self()));
}

void gpu(int, char **) {
  for (unsigned long long r = 0; r < rounds; r++)
    sg_actor_execute(flops);
  look(0);
  if (rest > 0)
    sg_actor_sleep_for(rest);
  look(1);
}

} // namespace

int main(int argc, char **argv) {
  sg_host_energy_plugin_init();
  simgrid_init(&argc, argv);
  if (argc != 5) {
    fprintf(stderr, "usage: rounds PLATFORM FLOPS ROUNDS REST\n");
    return 2;
  }
  flops = strtod(argv[2], nullptr);
  rounds = strtoull(argv[3], nullptr, 10);
  rest = strtod(argv[4], nullptr);
  simgrid_load_platform(argv[1]);
  if (sg_host_count() != 1) {
    fprintf(stderr, "the platform has %zu hosts, not one\n", sg_host_count());
    return 2;
  }
  sg_host_t *hosts = sg_host_list();
  sg_actor_t actor = sg_actor_init("gpu", hosts[0]);
  sg_actor_start_(actor, gpu, 0, nullptr);
  simgrid_run();
  printf("simgrid %d.%d.%d\n", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR, SIMGRID_VERSION_PATCH);
  printf("rounds %.17g %.17g\nrest %.17g %.17g\n", at[0], joules[0], at[1], joules[1]);
  return 0;
}

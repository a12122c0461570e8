// The views of the page. To add one, write js/views/NAME.js and list it here.
//
// A view is {
//   name:  how the address calls it: #/NAME/ARG?PARAMS
//   title: for the browser's tab and the head's navigation; titleOf(route) where the
//          tab should say more
//   nav:   whether the head's navigation has it
//   keys:  [[keys, what they do]] for the help
//   open(root, route, router): puts it into root and returns { update, close }.
//     update(route) is called when the address changes within the view, and returns
//     whether that was all; otherwise the view is opened anew. close ends requests,
//     timers and listeners.
// }
import { tasks } from './views/tasks.js';
import { task } from './views/task.js';
import { totals } from './views/totals.js';
import { compare } from './views/compare.js';
import { live } from './views/live.js';
import { sensors } from './views/sensors.js';
import { reports } from './views/reports.js';

export const views = [tasks, task, totals, compare, live, sensors, reports];

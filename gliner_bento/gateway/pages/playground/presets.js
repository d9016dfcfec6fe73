// Examples to start with; the bundled model finds what each asks for.

const preset = (title, labels, relations, text) => ({ title, labels, relations, text });

export const PRESETS = [
  preset(
    "People and places",
    ["person", "organization", "location", "date", "award"],
    ["born in", "studied at"],
    "Marie Curie was born in Warsaw in 1867 and studied at the University of Paris. In 1903 she received the Nobel Prize " +
      "in Physics together with Pierre Curie and Henri Becquerel.",
  ),
  preset(
    "Personal data",
    ["person", "email address", "phone number", "street address", "city", "date of birth", "credit card number"],
    [],
    "Contact: Laura Bennett, born 14 March 1986, 27 Maple Street, Portland.\nPhone: +1 503 555 0147, e-mail: " +
      "laura.bennett@example.com.\nHer credit card is 4111 1111 1111 1111.",
  ),
  preset(
    "Business relations",
    ["person", "organization", "location", "date"],
    ["founded", "founded in", "headquartered in"],
    "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond. Satya Nadella runs it today.",
  ),
  preset(
    "Medical",
    ["disease", "symptom", "medication", "dose"],
    [],
    "A patient with type 2 diabetes and hypertension reported chest pain and shortness of breath. She takes 500 mg of " +
      "metformin twice a day. An X-ray showed no pneumonia. Ibuprofen was stopped because of nausea.",
  ),
  preset(
    "Legal",
    ["person", "company", "court", "law", "date", "money", "city"],
    [],
    "On 3 June 2021 the Supreme Court ruled that Northwind Energy must pay 4.5 million euros to Acme Logistics Inc. for " +
      "breach of contract. Judge Anna de Vries based the decision on the Civil Code. Northwind Energy, " +
      "represented by Thomas Keller, appealed to the Court of Appeal in Amsterdam on 30 June 2021.",
  ),
];
